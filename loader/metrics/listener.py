"""Passes Spark's events of the query on to the observer."""

from __future__ import annotations

from pyspark.sql.streaming import listener

from loader.metrics.observer import LoaderObserver


class QueryListener(listener.StreamingQueryListener):
    """Pass on the events of one query, by its name: Spark reports all queries to every listener.

    The method names are Spark's.
    """

    def __init__(self, observer: LoaderObserver, query: str) -> None:
        self._observer, self._query = observer, query
        self._id = ""

    def onQueryStarted(self, event: listener.QueryStartedEvent) -> None:  # noqa: N802
        """Note that the query runs."""
        if event.name == self._query:
            self._id = str(event.id)
            self._observer.query_event("started")

    def onQueryProgress(self, event: listener.QueryProgressEvent) -> None:  # noqa: N802
        """Note that a micro-batch has ended."""
        if str(event.progress.id) == self._id:
            self._observer.query_event("progress", event.progress)

    def onQueryIdle(self, event: listener.QueryIdleEvent) -> None:  # noqa: N802
        """Note that there was nothing to do for a while."""
        if str(event.id) == self._id:
            self._observer.query_event("idle")

    def onQueryTerminated(self, event: listener.QueryTerminatedEvent) -> None:  # noqa: N802
        """Note that the query has ended."""
        if str(event.id) == self._id:
            self._observer.query_event("terminated")
