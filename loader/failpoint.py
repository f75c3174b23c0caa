"""Named points at which tests end the loader by SIGKILL; inert without LOADER_FAILPOINT.

LOADER_FAILPOINT=<name>[:n] kills worker process and driver when the point is reached for
the n-th time in a process (default: the first).
"""

from __future__ import annotations

import os
import signal
from collections import Counter

DRIVER = "LOADER_DRIVER_PID"
"""Environment variable by which worker processes of a local master know their driver."""

_reached: Counter[str] = Counter()


def reached(name: str) -> None:
    """Ends this process and the driver if the point is the one named; else nothing."""
    wanted, _, count = os.environ.get("LOADER_FAILPOINT", "").partition(":")
    if wanted != name:
        return
    _reached[name] += 1
    if _reached[name] == int(count or 1):
        driver = os.environ.get(DRIVER)
        if driver is not None and int(driver) != os.getpid():
            os.kill(int(driver), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
