"""Which processes a demo left behind."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil


def running_in(directory: Path) -> list[str]:
    """Command lines of processes that have to do with the demo's directory."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line = " ".join(process.cmdline())
            if str(directory) in line and process.pid != os.getpid():
                found.append(line)
    return found
