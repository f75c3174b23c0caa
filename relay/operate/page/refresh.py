"""Refreshes the screen every few seconds, in a thread of its own.

Receives what takes one, gives screens to the samples. A server that is away is a gap in the
plots; the audit goes on beside it.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Protocol

from relay.errors import RelayError
from relay.operate.page.samples import EVERY_SECONDS, Samples
from relay.operate.view.status import Screen, as_json

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

END_SECONDS = 2.0
"""How long `close` waits; the thread may be within a request."""


class ScreenReader(Protocol):
    """What relay.operate.view.ask.StatusReader is."""

    def screen(self) -> Screen:
        """Read the screen as it is now."""

    def close(self) -> None:
        """Let go."""


class ScreenRefresher:
    """Looks from its making until `close()`.

    Args:
        make: makes the one that looks, in the thread that looks.
        samples: gets every screen.
    """

    def __init__(self, make: Callable[[], ScreenReader], samples: Samples) -> None:
        self._make, self._samples = make, samples
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="page", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop looking."""
        self._stop.set()
        self._thread.join(END_SECONDS)

    def _run(self) -> None:
        looks: ScreenReader | None = None
        while not self._stop.is_set():
            try:
                looks = looks or self._make()
                self._samples.add(as_json(looks.screen()))
            except RelayError as error:
                self._fail(error.message)
            except Exception as bug:  # the page must say so, and try again
                log.exception("cannot refresh the page")
                self._fail(f"{type(bug).__name__}; see the log")
            self._stop.wait(EVERY_SECONDS)
        if looks is not None:
            looks.close()

    def _fail(self, problem: str) -> None:
        self._samples.fail(time.time_ns() // 1_000_000, problem)
