"""Waits for a server that does not answer, with back-off and log lines, until stopped.

All back-off is here: how long to wait after how many failures.
"""

from __future__ import annotations

import itertools
import logging
import math
import time
from typing import TYPE_CHECKING, TypeVar

from relay.errors import Unavailable

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Iterator

log = logging.getLogger(__name__)
T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 15.0
_DOUBLINGS = 64
"""More make no difference, and a float has an end."""


def backoff(first: float, longest: float, tries: int) -> float:
    """Return the seconds to wait after a failure: twice as many each time, up to `longest`.

    Args:
        first: seconds after the first failure.
        longest: seconds.
        tries: failures in a row before this one.
    """
    return min(first * 2.0 ** min(tries, _DOUBLINGS), longest)


def pauses(first: float, longest: float = math.inf) -> Iterator[float]:
    """Yield the seconds to wait after each failure in a row, without end, as `backoff` has them."""
    return (backoff(first, longest, tries) for tries in itertools.count())


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
    begun, later = time.monotonic(), pauses(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
    while True:
        try:
            return call()
        except Unavailable as error:
            if limit_seconds and time.monotonic() - begun >= limit_seconds:
                raise
            pause = next(later)
            log.warning(
                "a server is unavailable, waiting for it",
                extra={"why": error.message, "next": error.next_step, "again_in_s": pause},
            )
            for told in away:
                told(error.message)
            if stop.wait(pause):
                raise StoppedWaiting from error


class ServerWait:
    """How a process waits: `until_available` with its `stop` and the observers of each try."""

    def __init__(self, stop: threading.Event, *away: Callable[[str], None]) -> None:
        self._stop = stop
        self._away = away

    def __call__(self, call: Callable[[], T], limit_seconds: float = 0) -> T:
        """What `call` gives, once the server is there; raises as `until_available`."""
        return until_available(call, self._stop, limit_seconds, self._away)
