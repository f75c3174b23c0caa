"""Queries that share a Spark session begin one after the other.

Each starts a Python process for its source, which has ten seconds, fixed, until it must have
answered. Many at once on few cores would all be too late, and begin again together.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LONGEST_SECONDS = 30.0
"""For one of them: a source whose broker is away must not hold up the others."""
_LOOK_SECONDS = 0.1
_BEFORE = ("Initializing", "Getting offsets")
"""How Spark's words for a query begin whose source has not answered yet."""

Begin = Callable[[], "StreamingQuery"]


class StartAtOnce:
    """What a query that is alone does."""

    def start(self, begin: Begin, stopping: threading.Event) -> StreamingQuery:
        """Begin it; give it as soon as it runs."""
        del stopping
        return begin()


class StartInTurn(StartAtOnce):
    """For all queries of one session."""

    def __init__(self) -> None:
        self._turn = threading.Lock()

    def start(self, begin: Begin, stopping: threading.Event) -> StreamingQuery:
        """Begin it when it is its turn, and give it when its source has answered.

        Args:
            begin: starts the query.
            stopping: once set, nothing is waited for.
        """
        while not (held := self._turn.acquire(timeout=_LOOK_SECONDS)) and not stopping.is_set():
            pass
        try:
            query = begin()
            until = time.monotonic() + LONGEST_SECONDS
            while not _answered(query) and time.monotonic() < until:
                if stopping.wait(_LOOK_SECONDS):
                    break
            return query
        finally:
            if held:
                self._turn.release()


def _answered(query: StreamingQuery) -> bool:
    """Whether its source has, or it has ended."""
    return not query.isActive or not str(query.status["message"]).startswith(_BEFORE)


AT_ONCE = StartAtOnce()
