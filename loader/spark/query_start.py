"""A query begins again while its source's process is too slow; those of one session in turn.

Each starts a Python process for its source, which has ten seconds, fixed, until it must have
answered. Many at once on few cores would all be too late, and begin again together; on a machine
that is busy with other things one alone is.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

from relay.errors import Unavailable

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from loader.console import Say

LONGEST_SECONDS = 30.0
"""For one of them: a source whose broker is away must not hold up the others."""
_LOOK_SECONDS = 0.1
_BEFORE = ("Initializing", "Getting offsets")
"""How Spark's words for a query begin whose source has not answered yet."""

_TOO_SLOW = "Python worker failed to connect back."
"""Spark's words when the process has not answered within its ten seconds."""
_RAN_SECONDS = 60.0
"""A query that ended so long after its start had begun: its process went later."""


def start_in_turn(
    start: Callable[[], StreamingQuery], turn: threading.Lock | None, stopping: threading.Event
) -> StreamingQuery:
    """Start a query; return it when its source has answered.

    Args:
        start: starts the query.
        turn: held meanwhile, by one query of a session; None: the session has no other query, and
            this one is returned as soon as it runs.
        stopping: once set, the call waits for nothing.
    """
    if turn is None:
        return start()
    while not (held := turn.acquire(timeout=_LOOK_SECONDS)) and not stopping.is_set():
        pass
    try:
        query = start()
        deadline = time.monotonic() + LONGEST_SECONDS
        while not _answered(query) and time.monotonic() < deadline:
            if stopping.wait(_LOOK_SECONDS):
                break
        return query
    finally:
        if held:
            turn.release()


def run_again(
    run: Callable[[], None],
    limit_seconds: float,
    say: Say,
    restarted: Callable[[], None],
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Run a query to its end; begin it again while its source's process is too slow.

    Args:
        run: from the query's start to its end.
        limit_seconds: how long that may go on; 0: for ever.
        say: a line for people before each new beginning.
        restarted: called then, too.
        now: a monotonic clock.

    Raises:
        Unavailable: it was too slow for longer than the limit.
        Exception: as `run`.
    """
    first, tries = now(), 0
    while True:
        start = now()
        try:
            run()
        except StreamingQueryException as error:
            if _TOO_SLOW not in str(error):
                raise
            if now() - start > _RAN_SECONDS:
                first, tries = now(), 0
            tries += 1
            slow = f"Spark's Python process has not started within its ten seconds (try {tries})"
            step = "give the loader more of a processor; on an idle machine see Spark's lines above"
            if limit_seconds and now() - first > limit_seconds:
                raise Unavailable(slow, f"{step.capitalize()}.") from error
            say(f"{slow}, starting again: {step}", level=logging.WARNING)
            restarted()
        else:
            return


def _answered(query: StreamingQuery) -> bool:
    """Return whether the query's source has answered, or the query has ended."""
    return not query.isActive or not str(query.status["message"]).startswith(_BEFORE)
