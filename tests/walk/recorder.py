"""Note which files of the product one row's way goes through, in the order of first touch.

`python -m tests.walk` puts this file into each process as its `sitecustomize`. It looks at every
call from the function that has the row first to the one that lets go of it. What came before
(starting, assignments, looking at tables) is not the row's way.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

Function = tuple[str, str]

STAGES: dict[Function, tuple[str, str, Function]] = {
    ("relay/intake/sort_poll.py", "add"): (
        "relay",
        "relay/process/loop.py",
        ("relay/kafka/transactional_producer.py", "commit"),
    ),
    ("loader/journal/source.py", "_given"): (
        "journal",
        "loader/journal/source.py",
        ("loader/journal/source.py", "read"),
    ),
    ("loader/spark/micro_batch.py", "settle"): (
        "driver",
        "loader/spark/job.py",
        ("loader/spark/workers.py", "attempt"),
    ),
    ("loader/spark/workers.py", "load"): (
        "worker",
        "loader/spark/workers.py",
        ("loader/blocks/insert_statement.py", "insert"),
    ),
}
"""Where a stage begins: its name, the outermost file that has the row, and where it ends."""


class Recorder:
    """Of one process.

    Args:
        root: the checkout; files outside `relay/` and `loader/` are none of the product's.
        directory: gets one line for each time that a stage was gone through.
    """

    def __init__(self, root: str, directory: Path) -> None:
        self._root, self._directory = root, directory
        self._files: dict[str, str] = {}
        self._stage, self._end = "", ("", "")
        self._way: list[str] = []

    def profile(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Take one event of sys.setprofile."""
        if event not in {"call", "return"}:
            return
        code = frame.f_code
        file = self._file(code.co_filename)
        if not file or code.co_name == "<module>":
            return
        here = (file, code.co_name)
        if event == "return":
            if self._stage and here == self._end:
                self._write()
            return
        if not self._stage and here in STAGES:
            self._stage, outermost, self._end = STAGES[here]
            callers = self._callers(frame)
            self._way = callers[callers.index(outermost) :] if outermost in callers else []
        if self._stage and (not self._way or self._way[-1] != file):
            self._way.append(file)

    def _file(self, name: str) -> str:
        """The path from the root; empty for what is not the product's."""
        if name not in self._files:
            inside = name.startswith((f"{self._root}/relay/", f"{self._root}/loader/"))
            self._files[name] = name.removeprefix(f"{self._root}/") if inside else ""
        return self._files[name]

    def _callers(self, frame: FrameType) -> list[str]:
        """Who called this, from the outermost of the product's files in."""
        callers, at = [], frame.f_back
        while at is not None:
            if (file := self._file(at.f_code.co_filename)) and at.f_code.co_name != "<module>":
                callers.append(file)
            at = at.f_back
        return callers[::-1]

    def _write(self) -> None:
        line = json.dumps({"stage": self._stage, "way": self._way})
        self._stage, self._way = "", []
        with (self._directory / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as out:
            out.write(f"{line}\n")


if "WALK_INTO" in os.environ:
    recorder = Recorder(os.environ["WALK_ROOT"], Path(os.environ["WALK_INTO"]))
    threading.setprofile(recorder.profile)
    sys.setprofile(recorder.profile)
