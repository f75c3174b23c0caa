"""A command as an operator runs it: its output, the clock on the wall, the most memory it held."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from relay.errors import NotExactlyOnce

_LOOK_SECONDS = 0.2


def timed(command: Sequence[str | Path], **popen: Any) -> tuple[str, float, int]:
    """(standard output, seconds, bytes resident at most).

    Raises:
        NotExactlyOnce: it did not end with status 0.
    """
    began, most = time.monotonic(), 0
    with psutil.Popen(command, stdout=subprocess.PIPE, text=True, **popen) as process:
        while process.poll() is None:
            try:
                most = max(most, process.memory_info().rss)
            except psutil.NoSuchProcess:
                break
            try:
                process.wait(_LOOK_SECONDS)
            except psutil.TimeoutExpired:
                continue
        output: str = process.stdout.read()
    seconds = time.monotonic() - began
    if process.returncode:
        raise NotExactlyOnce(f"status {process.returncode} of {command}:\n{output[-2000:]}")
    return output, seconds, most
