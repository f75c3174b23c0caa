"""Wait for an unavailable server, with back-off, and say so, until asked to stop."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, TypeVar

from relay.errors import Unavailable

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection

log = logging.getLogger(__name__)
T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 15.0


class StoppedWaiting(Exception):
    """Somebody asked for a stop while a server was unavailable."""


def until_available(
    call: Callable[[], T],
    stop: threading.Event,
    limit_seconds: float = 0,
    away: Collection[Callable[[str], None]] = (),
) -> T:
    """Call until the server answers, and return the result; a limit of 0 waits for ever.

    Args:
        call: raises Unavailable while the server does not answer.
        stop: ends the waiting.
        limit_seconds: of waiting.
        away: each is called after each failed try with the reason.

    Raises:
        Unavailable: the last one, after `limit_seconds`.
        StoppedWaiting: `stop` was set meanwhile.
    """
    pause = FIRST_PAUSE_SECONDS
    begun = time.monotonic()
    while True:
        try:
            return call()
        except Unavailable as error:
            if limit_seconds and time.monotonic() - begun >= limit_seconds:
                raise
            log.warning(
                "a server is unavailable, waiting for it",
                extra={"why": error.message, "next": error.next_step, "again_in_s": pause},
            )
            for told in away:
                told(error.message)
            if stop.wait(pause):
                raise StoppedWaiting from error
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


class ServerWait:
    """How a process waits: `until_available` with its `stop` and those who are told."""

    def __init__(self, stop: threading.Event, *away: Callable[[str], None]) -> None:
        self._stop = stop
        self._away = away

    def __call__(self, call: Callable[[], T], limit_seconds: float = 0) -> T:
        """What `call` gives, once the server is there; raises as `until_available`."""
        return until_available(call, self._stop, limit_seconds, self._away)
