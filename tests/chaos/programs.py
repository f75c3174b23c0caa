"""Relays and loaders as processes: started, killed, stopped, and restarted when they end, as
Kubernetes would.

Receives command lines, gives processes and, for each that ended, whether its exit status is
one that a fault may cause. Ends only what it started: each program leads a session of its
own, whose every process (Spark's JVM and workers) goes with it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from relay.failpoints import VARIABLE
from tests import wall_clock

if TYPE_CHECKING:
    from collections.abc import Sequence

RESTARTED = {4, 7}
"""Exit statuses after which a supervisor starts a program again: a server stayed away, or
another process had this identity. All others that were not asked for are anomalies."""
WATCHDOG_STATUS = 1
"""relay.kafka.hang_guard's, and that of an interpreter that cannot even start, or of any script."""
_DUMP = re.compile(
    r"^Timeout \(\d+:\d\d:\d\d(\.\d+)?\)!$(?=.*^(Current thread|Thread) 0x.*^  File )",
    re.MULTILINE | re.DOTALL,
)
"""What faulthandler writes as it ends a process: the time that was up, and all stacks."""
STARTING_SECONDS = 10.0
SCRIPTS = "bin"
"""Where the commands of another version are, in its directory."""
GRACE_SECONDS = 60.0
"""For SIGTERM, on a crowded machine."""


_LAST_WORDS = re.compile(
    r" relay\.process\.loop left the consumer group member=|^[-:.T\d]+Z INFO loader ended",
    re.MULTILINE,
)
"""Of a program that ends by itself."""


def ended_already(status: int, said: str) -> bool:
    """Whether a SIGTERM came when the run had ended but for Python, which has no handler then."""
    return status == -signal.SIGTERM and _LAST_WORDS.search(said) is not None


def ended_by_watchdog(status: int, said: str) -> bool:
    """Whether a run ended as promised of a hung client call: with this status, and all stacks.

    Args:
        status: of its exit.
        said: all that this run alone wrote; a dump of the run before excuses nothing.
    """
    return status == WATCHDOG_STATUS and _DUMP.search(said) is not None


@dataclass
class Program:
    """One program under supervision.

    Attributes:
        name: for people, and of the log file.
        command: `relay ...` or `loader ...` with its arguments, or a Python module's.
        directory: of the log.
        code: where packages `relay` and `loader` of another version are; None: this checkout's.
        wanted: whether it is started again when it ends.
        kills: SIGKILLs that met it alive.
        watchdogs: ends by its own watchdog, of a client call that hung.
        ends: (exit status, whether it was to be expected) of every run.
    """

    name: str
    command: Sequence[str]
    directory: Path
    environment: dict[str, str] = field(default_factory=dict)
    code: Path | None = None
    wanted: bool = True
    kills: int = 0
    watchdogs: int = 0
    started_at: float = 0.0
    ends: list[tuple[int, bool]] = field(default_factory=list)
    armed: str = ""
    _said_before: int = 0
    _process: subprocess.Popen[bytes] | None = None
    _sessions: list[int] = field(default_factory=list)
    _excused: set[int] = field(default_factory=set)
    _asked: bool = False

    @property
    def log(self) -> Path:
        return self.directory / f"{self.name}.log"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def clock(self) -> Path:
        """The file that says by how much its wall clock is off, also after a restart."""
        return self.directory / f"{self.name}.clock"

    def start(self, *, failpoint: str = "") -> None:
        """Start it, if need be with a failpoint armed."""
        assert self._process is None, f"{self.name} runs already"
        program, *arguments = self.command
        scripts = Path(sys.executable).parent if self.code is None else self.code / SCRIPTS
        script = scripts / program
        command = [str(script), *arguments]
        if not script.is_file():
            command = [sys.executable, "-m", *self.command]
        paths = [] if self.code is None else [self.code]
        clock = wall_clock.environment(self.directory, self.clock, *paths)
        # Spark starts its workers with `python -m`, which looks into the current directory first.
        safe = {"PYTHONSAFEPATH": "1"} if paths else {}
        self.armed, self._asked = failpoint, False
        self._excused = {-signal.SIGKILL} if failpoint else set()
        with self.log.open("ab") as log:
            self._said_before = log.tell()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **self.environment, **clock, **safe, VARIABLE: failpoint},
            )
        self._forget_ended_sessions()
        self._sessions.append(self._process.pid)
        self.started_at = time.monotonic()

    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> bool:
        """SIGKILL for it and its session; whether it was alive."""
        alive = self.runs()
        if alive:
            self.kills += 1
            self._excused.add(-signal.SIGKILL)
            self._process.kill()  # type: ignore[union-attr]
            self._process.wait(30)  # type: ignore[union-attr]
        self._end_sessions()
        return alive

    def signal(self, number: int) -> None:
        """To it and its session, so that a paused loader is wholly paused."""
        for process in self._family():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def ask_to_end(self) -> None:
        """SIGTERM, once: a second one may meet Python's end, which has no handler any more."""
        if self.runs() and not self._asked:
            self._asked = True
            # A program that is still starting has no handler yet.
            # Nor has one that has said nothing yet: imports take long on a busy machine.
            starting = not self.said() or time.monotonic() - self.started_at < STARTING_SECONDS
            self._excused |= {0, -signal.SIGTERM} if starting else {0}
            self._process.terminate()  # type: ignore[union-attr]

    def stop(self, seconds: float = GRACE_SECONDS) -> None:
        """SIGTERM, and its end; killed, and noted as an anomaly, if it does not end in time."""
        self.wanted = False
        self.ask_to_end()
        if self._process is not None:
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(30)
        self.tend()
        self._end_sessions()

    def tend(self) -> tuple[int, bool] | None:
        """Exit status, and whether it was to be expected, of a run that has ended now."""
        if self._process is None or self._process.poll() is None:
            return None
        status = self._process.returncode
        said = self.said()
        hung, late = ended_by_watchdog(status, said), ended_already(status, said)
        self.watchdogs += hung
        end = status, hung or late or status in self._excused | RESTARTED
        self.ends.append(end)
        self._process = None
        return end

    def said(self) -> str:
        """What the run of now, or the last one, has written."""
        with self.log.open("rb") as log:
            log.seek(self._said_before)
            return log.read().decode(errors="replace")

    def last_lines(self, count: int = 30) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-count:])

    def memory_and_files(self) -> tuple[int, int] | None:
        """Resident bytes and open file descriptors of its session, or None if it is not there."""
        resident = files = 0
        try:
            for process in self._family():
                resident += process.memory_info().rss
                files += process.num_fds()
        except psutil.NoSuchProcess:
            return None
        return (resident, files) if resident else None

    def _family(self) -> list[psutil.Process]:
        found = []
        for pid in psutil.pids():
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
                if os.getsid(pid) in self._sessions:
                    found.append(psutil.Process(pid))
        return found

    def _end_sessions(self) -> None:
        """End what a killed program left behind: a JVM, workers that still insert."""
        left = [p for p in self._family() if p.pid != self.pid]
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=10)

    def _forget_ended_sessions(self) -> None:
        """A number that nobody has any more may be given to somebody else."""
        alive = set()
        for pid in psutil.pids():
            with contextlib.suppress(ProcessLookupError):
                alive.add(os.getsid(pid))
        self._sessions = [session for session in self._sessions if session in alive]
