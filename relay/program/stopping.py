"""How commands that go on until they are told to end are told so."""

from __future__ import annotations

import signal
import threading


def stopped_by_signal() -> threading.Event:
    """Set by the first SIGTERM or Ctrl-C; the command ends by itself, with status 0."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
