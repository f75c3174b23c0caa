"""A record that librdkafka reports as delivered without an offset counts as lost.

Its idempotent producer takes an accepted record as proof of those before it ("implicitly
acked by subsequent batch success"). To a partition that is new to the producer a broker accepts
any first sequence number: where it refused the first requests and took a later one, the first
records are in no log. Seen on the real broker; the mock cluster refuses the later request too.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Message, TopicPartition

from relay.config.settings import Kafka
from relay.core.events import Failure
from relay.errors import RelayError
from relay.kafka.counted_producer import Delivery
from relay.kafka.errors import TransactionFailed
from relay.kafka.transactional_producer import TransactionalProducer

if TYPE_CHECKING:
    from collections.abc import Callable

PLACE = TopicPartition("blocks", 0)
LOST, KEPT = -1001, 0  # librdkafka's OFFSET_INVALID, which the binding gives as None
"""Offsets of delivery reports: of a record acknowledged implicitly, and of one that is there."""


class Client:
    """librdkafka's producer, as far as it is asked; reports deliveries with given offsets."""

    def __init__(self, offsets: list[int]) -> None:
        self._offsets = offsets
        self._waiting: list[Callable[[None, Message], None]] = []

    def __call__(self, _: Any) -> Client:
        return self

    def __len__(self) -> int:
        return len(self._waiting)

    def produce(self, *arguments: Any, **named: Any) -> None:
        self._waiting.append(named.get("on_delivery") or arguments[-1])

    def flush(self, _: float) -> int:
        for report, offset in zip(self._waiting, self._offsets, strict=True):
            report(None, Message(topic="blocks", partition=0, offset=offset))
        self._waiting = []
        return 0

    def init_transactions(self, *_: float) -> None: ...
    def begin_transaction(self) -> None: ...
    def purge(self) -> None: ...
    def close(self) -> None: ...
    def poll(self, _: float) -> int:
        return 0


def test_a_transaction_with_a_lost_record_is_not_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its outcome is unknown: the producer is replaced, and the block formed anew."""
    monkeypatch.setattr("relay.kafka.transactional_producer.Producer", Client([LOST, KEPT]))
    with pytest.raises(TransactionFailed, match="without an offset") as failed:
        flushed()
    assert failed.value.kind is Failure.UNKNOWN


def test_control_records_with_offsets_are_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offset 0 is one too."""
    monkeypatch.setattr("relay.kafka.transactional_producer.Producer", Client([KEPT, 1]))
    assert flushed() == [KEPT, 1]


def flushed() -> list[int]:
    """Offsets of two records of one transaction."""
    config = {"transactional.id": "t", "logger": logging.getLogger("test")}
    producer = TransactionalProducer(config, 5.0, "group")
    producer.replace()
    producer.begin("a member")
    offsets: list[int] = []
    for _ in range(2):
        producer.produce(PLACE, b"x", b"k", [], offsets.append)
    producer.flush()
    return offsets


@pytest.mark.parametrize(("offsets", "rows"), [([KEPT, 1], 2), ([LOST, KEPT], 1)])
def test_rows_that_may_be_lost_are_not_counted(
    monkeypatch: pytest.MonkeyPatch, offsets: list[int], rows: int
) -> None:
    """A producer's program is told which, instead of that all are delivered."""
    monkeypatch.setattr("relay.kafka.counted_producer.Producer", Client(offsets))
    delivery = Delivery(Kafka(bootstrap="nowhere:1"), "rows", None, 5.0)
    for _ in range(2):
        delivery.send("d.t", b"x", 1)
    if rows == 2:
        delivery.flush()
    else:
        with pytest.raises(RelayError, match=r"1 messages \(1 rows\) were not delivered"):
            delivery.flush()
    assert delivery.delivered["d.t"] == rows
