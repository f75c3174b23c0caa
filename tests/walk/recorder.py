"""Note which files of the product one row's way goes through, in the order of first touch.

`python -m tests.walk` has each process begin this as its `sitecustomize`. There are two measures.
One looks at every call from the function that has the row first to the one that lets go of it. What
came before (starting, assignments, looking at tables) is not the row's way. The other looks at what
the functions have in their hands, and notes those that have the row's bytes: whoever follows these
passes over the clocks, guards and observers that are called meanwhile.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from inspect import CO_GENERATOR, CO_VARARGS, CO_VARKEYWORDS
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.walk.holding import Holding

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


MARKER = "marker"
"""A file in the directory of the ways: appears with the row, and has the text in its bytes."""


class Files:
    """Tell the product's files.

    Args:
        root: the checkout; files outside `relay/` and `loader/` are none of the product's.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._files: dict[str, str] = {}

    def of(self, code: CodeType) -> str:
        """Return the path from the root; empty for what is not of the product's functions."""
        name = code.co_filename
        if name not in self._files:
            inside = name.startswith((f"{self._root}/relay/", f"{self._root}/loader/"))
            self._files[name] = name.removeprefix(f"{self._root}/") if inside else ""
        return "" if code.co_name == "<module>" else self._files[name]


class Recorder:
    """Note every call of a stage, in one process.

    Args:
        files: of the product.
        directory: gets one line for each time that a stage was gone through.
    """

    def __init__(self, files: Files, directory: Path) -> None:
        self._files, self._directory = files, directory
        self._stage, self._end = "", ("", "")
        self._way: list[str] = []

    def profile(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Take one event of sys.setprofile."""
        if event not in {"call", "return"}:
            return
        if not (file := self._files.of(frame.f_code)):
            return
        here = (file, frame.f_code.co_name)
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

    def _callers(self, frame: FrameType) -> list[str]:
        """Who called this, from the outermost of the product's files in."""
        callers, at = [], frame.f_back
        while at is not None:
            if file := self._files.of(at.f_code):
                callers.append(file)
            at = at.f_back
        return callers[::-1]

    def _write(self) -> None:
        line = json.dumps({"stage": self._stage, "way": self._way})
        self._stage, self._way = "", []
        with (self._directory / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as out:
            out.write(f"{line}\n")


class BytesRecorder:
    """Note the files whose functions have the row's bytes in their hands, in one process.

    That is: as an argument or a variable, or as what they return, which then their caller has.

    Args:
        files: of the product.
        directory: has MARKER as soon as the row is under way; gets one line for each file.
    """

    def __init__(self, files: Files, directory: Path) -> None:
        self._files, self._directory = files, directory
        self._marker = directory / MARKER
        self._holding: Holding | None = None
        self._noted = {""}

    def profile(self, frame: FrameType, event: str, argument: Any) -> None:
        """Take one event of sys.setprofile."""
        if event not in {"call", "return"} or not (file := self._files.of(frame.f_code)):
            return
        if self._holding is None:
            if not self._marker.exists():
                return
            self._holding = Holding(self._marker.read_text(encoding="utf-8"))
        caller = "" if frame.f_back is None else self._files.of(frame.f_back.f_code)
        if self._noted.issuperset((file, caller)):
            return
        if event == "call":
            if any(map(self._holding.of, _arguments(frame))):
                self._note(caller)
                self._note(file)
        elif self._holding.of(argument):
            self._note(file)
            self._note(caller)
        if file not in self._noted and any(map(self._holding.of, list(frame.f_locals.values()))):
            self._note(file)

    def _note(self, file: str) -> None:
        if file in self._noted:
            return
        self._noted.add(file)
        line = json.dumps({"at": time.time_ns(), "file": file})
        with (self._directory / f"{os.getpid()}.bytes").open("a", encoding="utf-8") as out:
            out.write(f"{line}\n")


def _arguments(frame: FrameType) -> list[Any]:
    """What the caller handed over; of a generator that goes on, nothing."""
    code = frame.f_code
    if code.co_flags & CO_GENERATOR:
        return []
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    here = frame.f_locals
    return [here[name] for name in code.co_varnames[:count] if name in here]


def begin() -> None:
    """Record what this process does from now on."""
    files, directory = Files(os.environ["WALK_ROOT"]), Path(os.environ["WALK_INTO"])
    calls, of_bytes = Recorder(files, directory), BytesRecorder(files, directory)

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        calls.profile(frame, event, argument)
        of_bytes.profile(frame, event, argument)

    threading.setprofile(profile)
    sys.setprofile(profile)
