"""What Spark says of the query, told to the observer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from loader.metrics.observer import Observer


class Listener(StreamingQueryListener):
    """Of one observer; the method names are Spark's."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """The query runs."""
        del event
        self._observer.heard("started")

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A micro-batch has ended."""
        self._observer.heard("progress", event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """There was nothing to do for a while."""
        del event
        self._observer.heard("idle")

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """The query has ended."""
        del event
        self._observer.heard("terminated")
