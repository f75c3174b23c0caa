"""Named places at which a test ends, stops or holds relay or loader; inert unless told.

`RELAY_FAILPOINT=before_commit:kill` (SIGKILL), `:stop` (SIGSTOP; the test continues it) or
`:wait=FILE` (until the file is gone; FILE.reached says that it waits), at the first pass; with
a further `:3` at the third alone, with `:every` at each. The names are at the calls of
`reached`; the relay has one before and after each effect of its core.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "RELAY_FAILPOINT"
DRIVER = "RELAY_FAILPOINT_DRIVER"
"""Process id of the loader's driver, which dies with the worker process that is killed."""

_SIGNALS = {"": signal.SIGKILL, "kill": signal.SIGKILL, "stop": signal.SIGSTOP}


@dataclass(slots=True)
class Failpoint:
    """The one place that the environment names, and how many passes are left until it acts."""

    name: str
    action: str
    file: Path
    passes: int
    always: bool = False

    def passed(self) -> None:
        """Act if the failpoint is due: execution is there."""
        self.passes -= 1
        if self.always or self.passes == 0:
            self.act()

    def act(self) -> None:
        """Do what was asked for."""
        if self.action == "wait":
            if self.file.exists():
                self.file.with_name(f"{self.file.name}.reached").touch()
            while self.file.exists():
                time.sleep(0.05)
            return
        number = _SIGNALS[self.action]
        driver = int(os.environ.get(DRIVER, os.getpid()))
        if driver != os.getpid() and number == signal.SIGKILL:
            os.kill(driver, number)
        os.kill(os.getpid(), number)


def parse(text: str) -> Failpoint:
    """Parse `name[:action[:passes]]`, as in the environment; passes: a number, or every.

    Raises:
        ValueError: an action that is none of kill, stop, wait=FILE.
    """
    name, _, rest = text.partition(":")
    action, _, passes = rest.partition(":")
    kind, _, file = action.partition("=")
    if kind != "wait" and action not in _SIGNALS:
        raise ValueError(f"{VARIABLE}: unknown action {action!r}")
    if passes == "every":
        return Failpoint(name, kind, Path(file), 0, always=True)
    return Failpoint(name, kind, Path(file), int(passes or 1))


_armed = parse(os.environ.get(VARIABLE, ""))


def reached(name: str) -> None:
    """Say that execution is at `name`; the failpoint acts if this is its pass."""
    if name == _armed.name:
        _armed.passed()
