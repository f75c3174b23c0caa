"""What a loader's job leaves in a Spark session that goes on; no Spark."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest
from pyspark.errors import StreamingQueryException

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


def job() -> Job:
    return Job(SETTINGS, FewAside(), lambda *_, **__: None)  # type: ignore[arg-type]


def test_an_error_beside_the_query_stops_the_query() -> None:
    """Red before: it went on, and each start of the pipeline met its name ("already active")."""
    failed, query = job(), Query()
    failed._asides._error = KeyError("x")
    with pytest.raises(KeyError):
        failed._await(MagicMock(), query)  # type: ignore[arg-type]
    assert query.stopped == 1
    assert not failed._busy.locked()


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
