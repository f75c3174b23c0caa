"""A stop event for commands that run until they are asked to end."""

from __future__ import annotations

import signal
import threading


def stopped_by_signal() -> threading.Event:
    """Return an event that the first SIGTERM or Ctrl-C sets; the command ends with status 0."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
