"""The product's own programs, started, killed and ended as an operator would.

Receives command lines, gives running processes with logs in the demo's directory. Ends only
what it started: the process and, for the loader, the JVM and Python workers below it.
"""

from __future__ import annotations

import contextlib
import subprocess
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from relay.dev.process import undisturbed
from relay.errors import MissingTool, NotExactlyOnce

LAST_LINES = 12  # of a log, shown when its program ended by itself


@dataclass
class Program:
    """A console script with its arguments; every run appends to the same log."""

    name: str
    arguments: list[str]
    log: Path
    _process: psutil.Popen | None = field(default=None, init=False)

    def start(self) -> None:
        """Start it in a session of its own, so that Ctrl-C reaches only the demo."""
        script = Path(sysconfig.get_path("scripts")) / self.arguments[0]
        if not script.is_file():
            raise MissingTool(f"{script} is not there", "pip install block-relay")
        with self.log.open("ab") as log, undisturbed():
            self._process = psutil.Popen(
                [str(script), *self.arguments[1:]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise NotExactlyOnce, with exit status and end of the log, if it ended by itself."""
        status = None if self._process is None else self._process.poll()
        if status is not None:
            self._process = None
            raise NotExactlyOnce(
                f"{self.name} ended by itself with exit status {status}; its last lines:\n"
                + self.last_lines(),
                f"read {self.log}",
            )

    def last_lines(self) -> str:
        """Return the end of its log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-LAST_LINES:])

    def kill(self) -> int:
        """Kill it and everything below it by SIGKILL; return how many processes that were."""
        if self._process is None:
            return 0
        frozen = _freeze(self._process)
        for process in frozen:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(frozen, timeout=10)
        self._process.wait(timeout=10)
        self._process = None
        return len(frozen)

    def stop(self, seconds: float) -> int | None:
        """Send SIGTERM, then SIGKILL; return its status, None if it did not run or was killed."""
        if self._process is None:
            return None
        below = _family(self._process)
        try:
            self._process.terminate()
            status: int = self._process.wait(timeout=seconds)
        except psutil.TimeoutExpired:
            self.kill()
            return None
        self._process = None
        _, alive = psutil.wait_procs(below, timeout=5)
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return status


def _family(root: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return [root, *root.children(recursive=True)]
    return []


def _freeze(root: psutil.Process) -> list[psutil.Process]:
    """Stop the whole family, until it has no member that could still start another."""
    frozen: dict[int, psutil.Process] = {}
    while new := [process for process in _family(root) if process.pid not in frozen]:
        for process in new:
            frozen[process.pid] = process
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
    return list(frozen.values())
