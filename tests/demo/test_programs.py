from __future__ import annotations

import contextlib
import signal
import stat
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from relay.dev.demo.programs import Program
from relay.errors import MissingTool, NotExactlyOnce

PARENT = """#!/bin/bash
trap 'exit 0' TERM
bash -c 'setsid bash -c "trap \\"\\" TERM; while :; do sleep 0.1; done" & wait' &
echo ready
while :; do sleep 0.1; done
"""
"""Has a child, and below it a grandchild in a session of its own which ignores SIGTERM."""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "program"
    path.write_text(PARENT)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    return path


def is_grandchild(member: psutil.Process) -> bool:
    """The shell between has the same words in its command line, but behind "setsid"."""
    try:
        return " ".join(member.cmdline()).startswith("bash -c trap")
    except psutil.NoSuchProcess:  # a sleep of one of the shells, gone again
        return False


def started(script: Path) -> tuple[Program, list[psutil.Process]]:
    program = Program("it", [script.name], script.parent / "it.log")
    program.start()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        assert program._process is not None
        family = program._process.children(recursive=True)
        if any(map(is_grandchild, family)) and "ready" in program.last_lines():
            return program, [program._process, *family]
        time.sleep(0.02)
    raise AssertionError("the program's family did not appear")


def gone(family: list[psutil.Process]) -> bool:
    """Also of processes that nobody has waited for yet."""
    _, left = psutil.wait_procs(family, timeout=5)
    return not [p for p in left if p.status() != psutil.STATUS_ZOMBIE]


def test_a_kill_reaches_the_whole_family(script: Path) -> None:
    """Children and grandchildren, in whatever session, are gone, and it can start again."""
    program, family = started(script)
    assert program.kill() >= 3
    assert gone(family)
    again, family = started(script)
    again.kill()
    assert gone(family)


def test_a_stop_leaves_nobody_behind(script: Path) -> None:
    """SIGTERM ends the program with its own status; what it left below is killed."""
    program, family = started(script)
    assert program.stop(10) == 0
    assert gone(family)
    assert program.stop(10) is None


def test_what_does_not_stop_in_time_is_killed(script: Path) -> None:
    """A program that ignores SIGTERM is ended all the same."""
    script.write_text(PARENT.replace("exit 0", ""))
    program, family = started(script)
    assert program.stop(0.5) is None
    assert gone(family)


def test_an_end_that_nobody_asked_for_is_an_error_with_the_log(script: Path) -> None:
    """The error has the exit status and the last lines; a running program is none."""
    program, family = started(script)
    program.check()
    family[0].send_signal(signal.SIGKILL)
    family[0].wait(5)
    with pytest.raises(NotExactlyOnce, match=r"it ended by itself .* status -9(.|\n)*ready"):
        program.check()
    for process in family[1:]:
        with contextlib.suppress(psutil.NoSuchProcess):  # a sleep of one of the shells
            process.kill()


def test_a_program_that_is_not_installed_is_named(tmp_path: Path) -> None:
    """No console script: say how to get it."""
    with pytest.raises(MissingTool, match="not-there"):
        Program("it", ["not-there"], tmp_path / "log").start()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_midst_of_a_start_leaves_nobody(
    script: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """It acts once the process is on record, so that the clean-up finds it."""
    popen = psutil.Popen

    def interrupted(*arguments: object, **options: object) -> psutil.Popen:
        made = popen(*arguments, **options)
        signal.raise_signal(number)
        return made

    monkeypatch.setattr(psutil, "Popen", interrupted)
    program = Program("it", [script.name], script.parent / "it.log")
    # tests/conftest.py: SIGTERM ends a run as Ctrl-C does.
    with pytest.raises(KeyboardInterrupt):
        program.start()
    assert program._process is not None
    assert program.kill() >= 1
