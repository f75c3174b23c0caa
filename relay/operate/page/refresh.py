"""Refreshes the screen every few seconds, in a thread of its own.

A server that is away is a gap in the plots; the audit goes on beside it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from relay.errors import RelayError
from relay.operate.page.plots import EVERY_SECONDS, Samples
from relay.operate.view.ask import StatusReader
from relay.operate.view.status import as_json

log = logging.getLogger(__name__)

END_SECONDS = 2.0
"""How long `close` waits; the thread may be within a request."""


class ScreenRefresher:
    """Reads a screen every EVERY_SECONDS until `close()`, by a reader made in its own thread."""

    def __init__(self, make: Callable[[], StatusReader], samples: Samples) -> None:
        self._make, self._samples = make, samples
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="page", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop reading."""
        self._stop.set()
        self._thread.join(END_SECONDS)

    def _run(self) -> None:
        reader: StatusReader | None = None
        while not self._stop.is_set():
            try:
                reader = reader or self._make()
                self._samples.add(as_json(reader.screen()))
            except RelayError as error:
                self._fail(error.message)
            except Exception as bug:  # the page must say so, and try again
                log.exception("cannot refresh the page")
                self._fail(f"{type(bug).__name__}; see the log")
            self._stop.wait(EVERY_SECONDS)
        if reader is not None:
            reader.close()

    def _fail(self, problem: str) -> None:
        self._samples.fail(time.time_ns() // 1_000_000, problem)
