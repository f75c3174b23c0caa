"""Starts, finds and ends servers that outlive the process which starts them.

A pid file holds pid and process start time, and the command line must name the
server's directory: a number that the system gave to somebody else in the
meantime is not taken for ours, and is never sent a signal.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

import psutil

from relay.errors import Unavailable

_SAME_START_SECONDS = 2.0
"""The start time is computed from the boot time, which moves a little with the clock."""
_END_SECONDS = 30.0
_POLL_SECONDS = 0.02
_TAIL_LINES = 25

# Children are kept, so that an ended one is reaped and not seen as a zombie that still runs.
_children: dict[int, subprocess.Popen[bytes]] = {}


def pid_file(directory: Path, name: str) -> Path:
    """Return where the pid of server `name` is kept."""
    return directory / "pids" / f"{name}.json"


def log_file(directory: Path, name: str) -> Path:
    """Return where server `name` writes; kept and appended to over restarts."""
    return directory / "logs" / f"{name}.log"


def spawn(
    directory: Path, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
) -> int:
    """Start a server in a session of its own; return its pid.

    The stack's directory is absolute, and named in `command`.
    """
    pid_path, log_path = pid_file(directory, name), log_file(directory, name)
    for path in (pid_path, log_path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with log_path.open("ab") as log, undisturbed():
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C at `relay dev up` is not meant for the servers
            cwd=directory,
            env={**os.environ, **(environment or {})},
        )
        _children[child.pid] = child
        record = {"pid": child.pid, "started": psutil.Process(child.pid).create_time()}
        partial = pid_path.with_suffix(".part")
        partial.write_text(json.dumps(record), encoding="utf-8")
        partial.rename(pid_path)
    return child.pid


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back between a child's start and the line that records it.

    The signals are not blocked, for a child would inherit that. Python's handlers run in the
    main thread only, so elsewhere there is nothing to do.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, _: received.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for held_back in received:
            signal.raise_signal(held_back)


def find(directory: Path, name: str) -> psutil.Process | None:
    """Return the running server `name` of this directory, or None."""
    try:
        record = json.loads(pid_file(directory, name).read_text(encoding="utf-8"))
        pid, started = int(record["pid"]), float(record["started"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    child = _children.get(pid)
    if child is not None and child.poll() is not None:
        return None
    try:
        process = psutil.Process(pid)
        if abs(process.create_time() - started) > _SAME_START_SECONDS:
            return None
        if process.status() == psutil.STATUS_ZOMBIE:
            # Its other threads, while they end, still hold ports and files.
            return process if process.num_threads() > 1 else None
        command = process.cmdline()
    except psutil.ZombieProcess:  # it ended between the two looks: the next one decides
        return process
    except psutil.Error:
        return None
    # Empty for a moment while one program becomes another, as Java's launcher does.
    ours = not command or any(str(directory) in part for part in command)
    return process if ours else None


def end(directory: Path, name: str, *, kill: bool = False) -> bool:
    """End server `name` and wait until it is gone; return False if it did not run.

    It gets SIGTERM, and SIGKILL after 30 s; `kill`: SIGKILL at once, as in a crash.
    """
    process = find(directory, name)
    if process is None:
        pid_file(directory, name).unlink(missing_ok=True)
        return False
    if not kill:
        ask_to_end(process)
    if kill or not _gone_within(directory, name, _END_SECONDS):
        with suppress(psutil.NoSuchProcess):  # ended by itself: what was wanted
            process.kill()
    if not _gone_within(directory, name, _END_SECONDS):
        raise Unavailable(
            f"{name} (pid {process.pid}) does not end",
            "check why the process does not end; `kill` it if nothing else helps",
        )
    pid_file(directory, name).unlink(missing_ok=True)
    return True


def ask_to_end(process: psutil.Process) -> None:
    """Send SIGTERM, without waiting."""
    with suppress(psutil.NoSuchProcess):  # ended by itself: what was wanted
        process.terminate()


def _gone_within(directory: Path, name: str, seconds: float) -> bool:
    deadline = monotonic() + seconds
    while find(directory, name) is not None:
        if monotonic() > deadline:
            return False
        sleep(_POLL_SECONDS)
    return True


def await_ready(directory: Path, name: str, ready: Callable[[], bool], seconds: float) -> None:
    """Wait until `ready()`.

    Raises:
        Unavailable: the server ended, or was not ready within `seconds`; with its log's tail.
    """
    deadline = monotonic() + seconds
    while not ready():
        if find(directory, name) is None:
            raise Unavailable(f"{name} ended at start; its log says:\n{tail(directory, name)}")
        if monotonic() > deadline:
            raise Unavailable(
                f"{name} was not ready after {seconds:g} s; its log says:\n{tail(directory, name)}",
                f"read {log_file(directory, name)}",
            )
        sleep(_POLL_SECONDS)


def tail(directory: Path, name: str) -> str:
    """Return the last lines of a server's log."""
    text = log_file(directory, name).read_text(encoding="utf-8", errors="replace")
    return "\n".join(text.splitlines()[-_TAIL_LINES:]) or "(nothing)"
