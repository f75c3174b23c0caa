"""Several relay processes under one command: Python uses one core per process.

Members `<member>-0`, `<member>-1`, … of one pipeline, or of each of several. None ends the others:
what ends by itself is started again here, as relay.program.supervision says.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from relay.program.serving import behind
from relay.program.supervision import Past, after, worst
from relay.program.waiting import stopped_by_signal

log = logging.getLogger(__name__)

PROGRAM = [sys.executable, "-c", "from relay.cli import program; program()"]
LOOK_SECONDS = 0.2


def supervise(relays: Mapping[str, Sequence[str]]) -> int:
    """Run relays until SIGTERM or SIGINT, or until none can go on; return the worst status.

    `relays`: by a name for the log, the arguments of `relay run`.
    """
    stop = stopped_by_signal()
    children = [Child(name, arguments) for name, arguments in relays.items()]
    try:
        while not stop.wait(LOOK_SECONDS):
            for child in children:
                child.look(time.monotonic())
            if all(child.stays_ended for child in children):
                log.error("every relay process ended, and none is started again")
                break
    finally:
        running = [child.process for child in children if child.process is not None]
        for process in running:
            process.terminate()
        for process in running:
            process.wait()
    return worst(child.last_status for child in children)


class Child:
    """A relay process that is restarted where that may help.

    Attributes:
        process: that runs; None: none does.
        stays_ended: whether it is not started again.
        status: of the last that ended by itself.
    """

    def __init__(self, name: str, arguments: Sequence[str]) -> None:
        self._name, self._arguments = name, arguments
        self._past, self._due = Past(), float("-inf")
        self._since = 0.0
        self.process: subprocess.Popen[bytes] | None = None
        self.stays_ended = False
        self.status = 0

    @property
    def last_status(self) -> int:
        """The exit status of the last process, whether it was asked to end or not."""
        if self.process is None:
            return self.status
        status = int(self.process.returncode)
        # Asked to end while it was still starting, it had no handler yet.
        return 0 if status == -signal.SIGTERM else status

    def look(self, now: float) -> None:
        """Start the relay if that is due; decide what to do if it ended. `now`: monotonic."""
        if self.process is None:
            if not self.stays_ended and now >= self._due:
                command = [*PROGRAM, "run", *self._arguments]
                # Of a group of its own: Ctrl-C in a terminal reaches this process, which passes it
                # on.
                self.process = subprocess.Popen(command, process_group=0)  # noqa: S603 - our own program and checked arguments
                self._since = now
            return
        status = self.process.poll()
        if status is None:
            return
        self.process, self.status = None, status
        pause, self._past = after(status, now - self._since, self._past)
        extra = {"relay": self._name, "status": status}
        if pause is None:
            self.stays_ended = True
            log.error(
                "a relay process ended and is not started again; the others continue", extra=extra
            )
        else:
            self._due = now + pause
            log.warning(
                "a relay process ended, starting it again", extra={**extra, "in_seconds": pause}
            )


def listen_arguments(listen: str | None, index: int) -> list[str]:
    """Return the arguments that say where this process serves.

    Raises:
        ConfigError: `listen` is no address.
    """
    address = behind(listen, index)
    return [] if address is None else ["--http", address]
