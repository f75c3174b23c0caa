"""Wall clocks that somebody sets while a program works, for tests and campaigns.

Receives a directory, gives the environment of a program that looks into a file for the seconds
that its wall clock is off. Only Python's `time.time` and `time.time_ns` are: the monotonic clock
runs on, and the machine's clock is left as it is.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

VARIABLE = "WALL_STEP"
_SITE = f"""
import os, time
from pathlib import Path

_time, _time_ns, _file = time.time, time.time_ns, Path(os.environ["{VARIABLE}"])

def _step():
    try:
        return int(_file.read_text() or 0)
    except OSError:
        return 0

time.time = lambda: _time() + _step()
time.time_ns = lambda: _time_ns() + _step() * 10**9
"""


def environment(directory: Path, step: Path, *paths: Path) -> dict[str, str]:
    """Return what a program needs to go by the file `step`; its own child processes do so too.

    Args:
        directory: that may hold what Python imports at its start.
        step: the file; as long as there is none, the clock is right.
        paths: further ones to import from.
    """
    site = directory / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(_SITE, encoding="utf-8")
    before = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    return {
        VARIABLE: str(step),
        "PYTHONPATH": os.pathsep.join([str(site), *map(str, paths), *before]),
    }


def set_by(step: Path, seconds: int) -> None:
    """Set the clock of the programs that go by this file; a reader never sees half of it."""
    written = step.with_name(f"{step.name}.new")
    written.write_text(str(seconds), encoding="utf-8")
    written.replace(step)
