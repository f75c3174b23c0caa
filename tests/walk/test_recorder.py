"""The walk's own arithmetic: which files a row's way touches, and where it comes back."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.walk import __main__ as walk
from tests.walk.recorder import MARKER, STAGES, BytesRecorder, Files, Recorder

ROOT = Path(__file__).resolve().parents[2]


def test_a_stage_begins_and_ends_at_functions_that_exist() -> None:
    """A function that was renamed or moved would leave its stage out."""
    for (file, begins), (_, outermost, (last, ends)) in STAGES.items():
        assert f"def {begins}(" in (ROOT / file).read_text(encoding="utf-8")
        assert f"def {ends}(" in (ROOT / last).read_text(encoding="utf-8")
        assert (ROOT / outermost).exists()


def test_files_are_noted_between_the_two_functions(tmp_path: Path) -> None:
    """Calls before and after the stage are not noted, nor those of other code."""
    sources = {
        "relay/intake/sort_poll.py": "def add(then): then()",
        "relay/rows/decode.py": "def decode(): return 1",
        "relay/kafka/transactional_producer.py": "def commit(): return 2",
        "relay/process/loop.py": "def turn(add, *then): add(lambda: [one() for one in then])",
        "other/code.py": "def beside(): return 3",
    }
    poll, rows, kafka, loop, other = modules(tmp_path, sources)
    recorder = Recorder(Files(str(tmp_path)), tmp_path)
    sys.setprofile(recorder.profile)
    try:
        rows.decode()
        loop.turn(poll.add, other.beside, rows.decode, kafka.commit)
        rows.decode()
    finally:
        sys.setprofile(None)
    (noted,) = tmp_path.glob("*.jsonl")
    (line,) = noted.read_text(encoding="utf-8").splitlines()
    way = json.loads(line)["way"]
    assert list(dict.fromkeys(way)) == [
        "relay/process/loop.py",
        "relay/intake/sort_poll.py",
        "relay/rows/decode.py",
        "relay/kafka/transactional_producer.py",
    ]


def test_only_files_that_have_the_bytes_in_their_hands_are_noted(tmp_path: Path) -> None:
    """A clock, an observer that hears of sizes, and a guard that runs something are not."""
    sources = {
        "relay/intake/source.py": "def poll(queue): return list(queue)",
        "relay/process/loop.py": """
def turn(queue, poll, *then):
    polled = poll(iter(queue))
    for one in then: one(polled)
""",
        "relay/rows/decode.py": "def decode(polled): return len(polled)",
        "relay/kafka/guard.py": "def guarded(call): return call()",
        "relay/program/clock.py": "def now(): return 1",
        "relay/metrics/observer.py": "def heard(size): return size",
    }
    source, loop, rows, guard, clock, observer = modules(tmp_path, sources)
    (tmp_path / MARKER).write_text("from-one-row", encoding="utf-8")

    def beside(polled: list[bytes]) -> None:
        clock.now()
        observer.heard(len(polled[0]))
        guard.guarded(lambda: rows.decode(polled))

    recorder = BytesRecorder(Files(str(tmp_path)), tmp_path)
    sys.setprofile(recorder.profile)
    try:
        rows.decode([b"of another"])
        loop.turn([b"bytes from-one-row"], source.poll, beside)
    finally:
        sys.setprofile(None)
    assert walk.passed(tmp_path) == [
        "relay/process/loop.py",
        "relay/intake/source.py",
        "relay/rows/decode.py",
    ]


def test_what_a_function_returns_its_caller_has(tmp_path: Path) -> None:
    """Whoever keeps it in no variable has had it too."""
    sources = {
        "relay/intake/source.py": "def poll(queue): return next(queue)",
        "relay/process/loop.py": "def turn(queue, poll): return len(poll(queue))",
    }
    source, loop = modules(tmp_path, sources)
    (tmp_path / MARKER).write_text("from-one-row", encoding="utf-8")
    recorder = BytesRecorder(Files(str(tmp_path)), tmp_path)
    sys.setprofile(recorder.profile)
    try:
        loop.turn(iter([b"bytes from-one-row"]), source.poll)
    finally:
        sys.setprofile(None)
    assert walk.passed(tmp_path) == ["relay/intake/source.py", "relay/process/loop.py"]


def modules(root: Path, sources: Mapping[str, str]) -> list[Any]:
    """The modules of new files."""
    for name, text in sources.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return [loaded(root / name) for name in sources]


def loaded(path: Path) -> Any:
    """The module of a file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("files", "back"),
    [
        (["a/x.py", "a/y.py", "b/x.py"], []),
        (["a/x.py", "b/x.py", "a/y.py", "a/z.py", "b/y.py"], ["a/y.py", "b/y.py"]),
    ],
)
def test_a_return_is_a_new_file_of_a_room_that_was_left(files: list[str], back: list[str]) -> None:
    """Further files of the room that one is in are no return."""
    assert walk.returns(files) == back
