"""Programs that stand still for a while and keep their connections.

Receives processes, stops them (SIGSTOP) and lets them go on. Never ends one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psutil


@contextmanager
def paused(processes: Sequence[psutil.Process]) -> Iterator[None]:
    """None of them runs meanwhile."""
    try:
        for one in processes:
            one.suspend()
        yield
    finally:
        for one in processes:
            one.resume()
