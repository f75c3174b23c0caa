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
    """Start a query that shares its session with no other."""

    def start(self, begin: Begin, stopping: threading.Event) -> StreamingQuery:
        """Start the query; return it as soon as it runs."""
        del stopping
        return begin()


class StartInTurn(StartAtOnce):
    """Start the queries of one session one after the other."""

    def __init__(self) -> None:
        self._turn = threading.Lock()

    def start(self, begin: Begin, stopping: threading.Event) -> StreamingQuery:
        """Start the query when its turn comes; return it when its source has answered.

        Args:
            begin: starts the query.
            stopping: once set, the call waits for nothing.
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
    """Return whether the query's source has answered, or the query has ended."""
    return not query.isActive or not str(query.status["message"]).startswith(_BEFORE)


AT_ONCE = StartAtOnce()
