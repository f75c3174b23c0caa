"""Signals that wait: a process that was started is also on record.

Receives a block of code, runs it; SIGINT and SIGTERM that come meanwhile act behind it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold Ctrl-C back between a child's start and the line that keeps it.

    The signals are not blocked, for a child would inherit that. Python's handlers run in the
    main thread only, so elsewhere there is nothing to do.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []
    before = {
        number: signal.signal(number, lambda found, _: heard.append(found))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for found in heard:
            signal.raise_signal(found)
