"""A program with a wall clock that is off, for campaigns.

python -m tests.chaos.shifted SECONDS relay|loader|MODULE ARGUMENTS...
"""

from __future__ import annotations

import importlib
import runpy
import sys
import time

MODULES = {"relay": "relay.cli", "loader": "loader.cli"}
"""Console scripts, whose entry points are called `main`."""


def shift(seconds: float) -> None:
    """From now on this process's wall clock is off; the monotonic one is left alone."""
    real, real_ns = time.time, time.time_ns
    time.time = lambda: real() + seconds
    time.time_ns = lambda: real_ns() + round(seconds * 1e9)


def run(name: str) -> None:
    """A console script or module, imported only now: nothing keeps the unshifted clock."""
    if name in MODULES:
        sys.exit(importlib.import_module(MODULES[name]).main())
    runpy.run_module(name, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    shift(float(sys.argv.pop(1)))
    run(sys.argv.pop(1))
