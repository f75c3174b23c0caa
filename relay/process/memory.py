"""How a relay process allocates: set once, before it begins to poll.

A relay makes and drops some hundred thousand small objects and some hundred megabytes of
columns each second, again and again the same sizes.
"""

from __future__ import annotations

import ctypes
import gc

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""
_KEPT_BYTES = 256 * 1024 * 1024
"""Freed memory that the process keeps for itself, and the largest piece that may lie in it."""


def prepare() -> None:
    """Search less for cycles, and keep freed memory; both without effect on results."""
    # A poll makes thousands of small objects, none of them in a cycle; looking for cycles at
    # the default threshold of 700 took a fifth of the process's time.
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    # By default glibc gives each large piece back to the kernel, which clears it before the
    # next block gets it again: a tenth of the time of forming blocks.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # other C libraries keep to their own rules
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
