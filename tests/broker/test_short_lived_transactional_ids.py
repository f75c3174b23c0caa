"""A broker that allows short transactions only, and forgets transactional ids within seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relay.config.settings import Kafka
from relay.dev import stack as dev_stack
from relay.errors import Refused
from relay.kafka.counted_producer import Delivery
from tests.broker.test_wrong_surroundings_end_with_a_clear_error import ended

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relay.dev.stack import Stack
    from tests.broker.pipeline import Pipeline

HASTY = """
transaction.max.timeout.ms=20000
transactional.id.expiration.ms=3000
transaction.remove.expired.transaction.cleanup.interval.ms=300
producer.id.expiration.ms=3000
producer.id.expiration.check.interval.ms=300
"""
STATE, STATE_PARTITIONS = "__transaction_state", 3


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    directory = tmp_path_factory.mktemp("hasty")
    (directory / "extra.properties").write_text(HASTY, encoding="utf-8")
    try:
        yield dev_stack.up(directory, progress=print)
    finally:
        dev_stack.down(directory)


@pytest.fixture
def bootstrap(hasty: Stack) -> str:
    """Of the pipeline's broker, in the place of the shared one."""
    return hasty.bootstrap


@pytest.mark.long  # 17 s
def test_a_transaction_timeout_that_the_broker_does_not_allow(pipeline: Pipeline) -> None:
    """Status 5 at once, with both numbers."""
    config = pipeline.config(transaction_timeout_seconds=30.0, session_timeout_seconds=40.0)

    status, log = ended(pipeline, pipeline.start("a", config))

    assert status == 5
    assert "relay.transaction_timeout_seconds is 30000 ms" in log
    assert "transaction.max.timeout.ms = 20000" in log
    assert "set relay.transaction_timeout_seconds = 20," in log


def test_a_producer_whose_transactions_may_be_longer_than_the_broker_allows(
    hasty: Stack,
) -> None:
    """Refused at once, with both numbers and the setting that they come from."""
    with pytest.raises(Refused) as refused:
        Delivery(Kafka(bootstrap=hasty.bootstrap), "t", "id", 30.0)
    assert "delivery_timeout_seconds is 30000 ms" in refused.value.message
    assert "transaction.max.timeout.ms = 20000" in refused.value.message
    assert refused.value.next_step.startswith("set delivery_timeout_seconds = 20,")


def forgotten(pipeline: Pipeline) -> int:
    """Transactional ids that the coordinator has let go of: null values in its log."""
    records = pipeline.read(STATE, STATE_PARTITIONS)
    return sum(value is None for of_one in records.values() for _, value, _ in of_one)


def test_a_transactional_id_that_the_coordinator_has_forgotten(pipeline: Pipeline) -> None:
    """The relay rested for longer than ids are kept: it goes on, each row once."""
    before = forgotten(pipeline)
    relay = pipeline.start("a")
    pipeline.send(range(100))
    pipeline.until(lambda: pipeline.rows() == pipeline.sent, "the rows before the rest")
    pipeline.until(lambda: forgotten(pipeline) > before, "the coordinator forgets the id")

    pipeline.send(range(100, 200))
    pipeline.send(range(200, 300), partition=1)
    pipeline.exactly_once()

    assert relay.poll() is None, pipeline.log(relay)
    assert "INVALID_PRODUCER_ID_MAPPING" in pipeline.log(relay), "it was never forgotten"
