"""A consumer group that lets a relay in under no circumstances, or not beside others."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer

from relay import names
from tests.broker.own_broker import bootstrap, own_broker  # noqa: F401 - one is a fixture
from tests.broker.pipeline import wait_until
from tests.broker.test_wrong_surroundings_end_with_a_clear_error import ended

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.broker.pipeline import Pipeline

pytestmark = pytest.mark.long  # 60 s: a broker of its own

LIMITED = "group.min.session.timeout.ms=6000\ngroup.max.size=2\n"
"""Kafka's default of the one, and less than that of the other."""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Directory of a broker with such limits."""
    with own_broker(tmp_path_factory.mktemp("limited"), LIMITED) as directory:
        yield directory


def test_a_session_shorter_than_the_brokers_allow(pipeline: Pipeline) -> None:
    """Status 5 with the setting and the limit."""
    config = pipeline.config(session_timeout_seconds=5.0, transaction_timeout_seconds=4.0)

    status, log = ended(pipeline, pipeline.start("a", config))

    assert status == 5, log
    assert "relay.session_timeout_seconds is 5000 ms (group.min.session.timeout.ms = 6000" in log
    assert "set relay.session_timeout_seconds = 6," in log


@pytest.mark.parametrize(
    ("others", "code"), [(1, "INCONSISTENT_GROUP_PROTOCOL"), (2, "GROUP_MAX_SIZE_REACHED")]
)
def test_other_programs_in_the_group(pipeline: Pipeline, others: int, code: str) -> None:
    """The relay says so and how to see them, and goes on once they are gone."""
    pipeline.send(range(10))
    with foreign(pipeline, others):
        relay = pipeline.start("a")
        pipeline.until(lambda: code in pipeline.log(relay), "a line about the group")
        log = pipeline.log(relay)
        assert "the consumer group gives the relay no partitions" in log
        assert f"--group {names.group_id(pipeline.app)} --describe --members" in log
        assert "cannot continue reading a source partition" not in log

    pipeline.until(lambda: pipeline.rows() == pipeline.sent, "rows, once they are gone")
    assert relay.poll() is None


@contextlib.contextmanager
def foreign(pipeline: Pipeline, count: int) -> Iterator[None]:
    """Somebody else's consumers, in the relays' group by mistake."""
    client = {
        "bootstrap.servers": pipeline.bootstrap,
        "group.id": names.group_id(pipeline.app),
        "partition.assignment.strategy": "cooperative-sticky",
        "enable.auto.commit": False,
    }
    consumers = [Consumer(client) for _ in range(count)]
    for consumer in consumers:
        consumer.subscribe([pipeline.source])

    def all_in() -> bool:
        for consumer in consumers:
            consumer.poll(0.1)
        return all(consumer.assignment() for consumer in consumers)

    try:
        wait_until(all_in, "their places in the group")
        yield
    finally:
        for consumer in consumers:
            consumer.close()
