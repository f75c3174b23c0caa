"""What processes that run side by side use together, until none of them does any more."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def shared(file: Path, end: Callable[[], object]) -> Iterator[None]:
    """Use something together with others; whoever leaves last ends it.

    Who comes while it is being ended waits, and may start it again. A process that dies leaves.

    Args:
        file: that stands for it; made if missing.
        end: ends it.
    """
    with file.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        try:
            yield
        finally:
            # Who does not get this lock gives up the other one: of two that leave at the same
            # time, one gets it. (flock(2), "Converting a lock".)
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                end()
