"""What a loader's job leaves in a Spark session that goes on; no Spark."""

from __future__ import annotations

import contextlib
from unittest.mock import MagicMock

import pytest
from pyspark.errors import StreamingQueryException

from loader.journal.source import Start
from loader.metrics.observer import NOTHING, LoaderObserver
from loader.spark.job import Job
from relay.errors import Unavailable
from tests.loader.test_stopped_tries import SETTINGS, FewAside


class Query:
    """A streaming query between two batches, until it is stopped.

    Attributes:
        stopped: how often it was told to.
    """

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self.stopped = 0
        self.status = {"isTriggerActive": False}

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        return self._error is None and not self.stopped

    def awaitTermination(self, _: float) -> bool:  # noqa: N802 - Spark's name
        if self._error is not None:
            raise self._error
        return False

    def stop(self) -> None:
        self.stopped += 1


class Gone(Query):
    """A query whose JVM has ended."""

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        raise ConnectionRefusedError


def job(observer: LoaderObserver = NOTHING) -> Job:
    return Job(SETTINGS, FewAside(), lambda *_, **__: None, observer)  # type: ignore[arg-type]


def test_an_error_beside_the_query_stops_the_query() -> None:
    """Red before: it went on, and each start of the pipeline met its name ("already active")."""
    failed, query = job(), Query()
    failed._asides._error = KeyError("x")
    with pytest.raises(KeyError):
        failed._await(MagicMock(), query)  # type: ignore[arg-type]
    assert query.stopped == 1
    assert not failed._busy.locked()
    assert failed._stopping.is_set()  # a batch that waits for ClickHouse ends


def test_the_error_is_raised_where_the_jvm_is_gone() -> None:
    failed = job()
    failed._asides._error = KeyError("x")
    with pytest.raises(KeyError):
        failed._await(MagicMock(), Gone())  # type: ignore[arg-type]


def test_a_query_that_ended_by_itself_is_not_stopped() -> None:
    """Negative control; what its batch raised is what is raised."""
    failed, query = job(), Query(StreamingQueryException("of the batch"))
    with pytest.raises(StreamingQueryException):
        failed._await(MagicMock(), query)  # type: ignore[arg-type]
    failed.error = Unavailable("away", "wait")
    with pytest.raises(Unavailable):
        failed._await(MagicMock(), query)  # type: ignore[arg-type]
    assert query.stopped == 0


@pytest.mark.parametrize("fails", [False, True])
def test_a_job_takes_its_listener_with_it(*, fails: bool) -> None:
    """Red before: each restart of a pipeline left one more, to which Spark told every event."""
    spark = MagicMock()
    query = spark.readStream.format().load().writeStream.foreachBatch().queryName()
    start = query.option().trigger().options().start
    start.side_effect = KeyError("x") if fails else None
    with pytest.raises(KeyError) if fails else contextlib.nullcontext():
        job(LoaderObserver()).run(spark, Start(SETTINGS, "J", {}), "there", once=False)
    (listener,) = spark.streams.addListener.call_args.args
    spark.streams.removeListener.assert_called_once_with(listener)


def test_a_listener_of_a_jvm_that_is_gone_hides_no_error() -> None:
    spark = MagicMock()
    spark.streams.removeListener.side_effect = ConnectionRefusedError
    watched = job(LoaderObserver())
    with pytest.raises(KeyError), watched._listening(spark):
        raise KeyError("x")
