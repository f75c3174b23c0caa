"""Waits for a server that does not answer, with back-off and log lines, until stopped.

All back-off is here: how long to wait after how many failures. So is the stop event of commands
that run until they are asked to end.
"""

from __future__ import annotations

import itertools
import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from typing import TypeVar

from relay.errors import Unavailable, WrongCredentials

log = logging.getLogger(__name__)
T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 15.0
_DOUBLINGS = 64
"""More make no difference, and a float has an end."""
_FORGOTTEN = 10  # times as long as makes it late, something is not asked about


def stopped_by_signal() -> threading.Event:
    """Return an event that the first SIGTERM or Ctrl-C sets; the command ends with status 0."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def backoff(first: float, longest: float, tries: int) -> float:
    """Return the seconds to wait after a failure: twice as many each time, up to `longest`.

    `tries`: failures in a row before this one.
    """
    return min(first * 2.0 ** min(tries, _DOUBLINGS), longest)


def pauses(first: float, longest: float = math.inf) -> Iterator[float]:
    """Yield the seconds to wait after each failure in a row, without end, as `backoff` has them."""
    return (backoff(first, longest, tries) for tries in itertools.count())


RENEWAL_SECONDS = 180.0
"""For a changed Secret to reach the file that is mounted: the kubelet's sync period of a minute and
the delay of its cache (Kubernetes' documentation, "Mounted Secrets are updated automatically")."""
RENEWAL_PAUSE_SECONDS = 5.0


class StoppedWaiting(Exception):
    """Somebody asked for a stop while a server was unavailable."""


class ServerWait:
    """Wait for a server that does not answer, until stopped, with a log line for each try.

    Observers are called with the reason after each failed one.
    """

    def __init__(self, stop: threading.Event, *observers: Callable[[str], None]) -> None:
        self._stop, self._observers = stop, observers

    def __call__(self, call: Callable[[], T], limit_seconds: float = 0) -> T:
        """Call until the server answers, and return the result; a limit of 0 waits for ever.

        Raises:
            Unavailable: the last one, after `limit_seconds`.
            StoppedWaiting: `stop` was set meanwhile.
        """
        start, later = time.monotonic(), pauses(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        while True:
            try:
                return call()
            except Unavailable as error:
                if limit_seconds and time.monotonic() - start >= limit_seconds:
                    raise
                pause = next(later)
                log.warning(
                    "a server is unavailable, waiting for it",
                    extra={"why": error.message, "next": error.next_step, "again_in_s": pause},
                )
                for observe in self._observers:
                    observe(error.message)
                if self._stop.wait(pause):
                    raise StoppedWaiting from error


class Retry:
    """When to ask a server again that did not answer, for those who do not wait for it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._later = pauses(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        self._at = -math.inf

    @property
    def due(self) -> bool:
        """Return whether the server may be asked now."""
        return self._clock() >= self._at

    def failed(self, least: float = 0.0) -> float:
        """Note that it did not answer; return the seconds, at least `least`, until it is due."""
        pause = max(next(self._later), least)
        self._at = self._clock() + pause
        return pause

    def answered(self) -> None:
        """Note that it answered: the next failure is a first one again."""
        self._later, self._at = pauses(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS), -math.inf


class Lateness:
    """For how long each of several things has been missing; after so many seconds it is late.

    What was not asked about for ten times as long was dealt with or given up: it begins anew. Who
    asks may pause for minutes.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._asked: dict[Hashable, tuple[float, float]] = {}

    def late(self, what: Hashable) -> bool:
        """Note that it is still missing; return whether it has been for so many seconds."""
        now = time.monotonic()
        since, last = self._asked.get(what, (now, now))
        if now - last > _FORGOTTEN * self._seconds:
            since = now
        self._asked[what] = since, now
        return now - since >= self._seconds


class CredentialsWait:
    """How long a program whose credentials were good goes on where they are refused.

    Whoever changes a password does so at the brokers first: for a while the file still has the
    old one. To end would take all programs of an app away at once. `renewed`: whether the
    credentials come from files, so that others can come.
    """

    def __init__(self, stop: threading.Event, *, renewed: bool) -> None:
        self._stop, self._renewed = stop, renewed
        self._refused_at: float | None = None
        self._were_good = False

    def good(self) -> None:
        """Note that the credentials were taken."""
        self._were_good, self._refused_at = True, None

    def __call__(self, error: WrongCredentials) -> None:
        """Wait a moment before they are read and tried again.

        Raises:
            WrongCredentials: `error`, where they were never good, no file can bring others, or
                RENEWAL_SECONDS have passed.
            StoppedWaiting: `stop` was set meanwhile.
        """
        now = time.monotonic()
        self._refused_at = now if self._refused_at is None else self._refused_at
        if not (self._renewed and self._were_good) or now - self._refused_at > RENEWAL_SECONDS:
            raise error
        log.warning(
            "the credentials are refused now; waiting until their files hold others",
            extra={
                "why": error.message,
                "refused_for_s": round(now - self._refused_at),
                "ends_after_s": RENEWAL_SECONDS,
            },
        )
        if self._stop.wait(RENEWAL_PAUSE_SECONDS):
            raise StoppedWaiting from error
