"""Chunks are handed to the client many at a time, each where its blocks say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from confluent_kafka import TopicPartition

from relay.blocks.form_block import BlockFacts, Formed
from relay.core.state import Seal, SealReason
from relay.process import chunk_queue
from relay.process.chunk_queue import ChunkQueue
from tests.core.build import buffer

if TYPE_CHECKING:
    import pytest

    from relay.kafka.transactional_producer import TransactionalProducer


class Producer:
    """Keeps what it is given; acknowledges it at offsets that count up."""

    def __init__(self) -> None:
        self.records: list[tuple[str, int, bytes, bytes, dict[str, Any]]] = []

    def produce(
        self, place: Any, value: bytes, key: bytes, headers: Any, acknowledged: Any
    ) -> None:
        acknowledged(len(self.records))
        self.records.append((place.topic, place.partition, value, key, dict(headers)))


def queue_of(producer: Producer) -> ChunkQueue:
    return ChunkQueue(cast("TransactionalProducer", producer))


def seal(partition: int) -> Seal:
    return Seal(partition, "d.x", f"a:d.x:{partition}:1:5", SealReason.AGE, buffer(5))


def test_a_block_has_chunks_of_its_own() -> None:
    producer = Producer()
    facts = BlockFacts(schema_version=8)
    formed = Formed(facts, [(b"one", 2), (b"two", 3)], message_rows=b"list")
    queue = queue_of(producer)
    offsets = queue.add(TopicPartition("t", 3), seal(3), formed)
    assert (producer.records, offsets) == ([], [])
    queue.release()
    assert producer.records == [
        (
            "t",
            3,
            b"one",
            b"a:d.x:3:1:5",
            {"seq": b"0", "rows": b"2", "schema": b"8", "messages": b"list"},
        ),
        ("t", 3, b"two", b"a:d.x:3:1:5", {"seq": b"1", "rows": b"3", "schema": b"8"}),
    ]
    assert offsets == [0, 1]


def test_a_block_that_lies_elsewhere_lists_its_messages_as_one_that_shares() -> None:
    producer = Producer()
    formed = Formed(BlockFacts(schema_version=8), [(b"one", 2), (b"two", 3)], message_rows=b"list")
    queue = queue_of(producer)
    offsets = queue.add(TopicPartition("t", 1), seal(3), formed)
    queue.release()
    (_, partition, _, key, headers), (*_, others) = producer.records
    assert (partition, key, headers["messages.3"]) == (1, b"a:d.x:3:1:5", b"list")
    assert others.keys() == {"seq", "rows", "schema"}
    assert offsets == [0, 1]


def test_a_shared_chunk_lies_with_the_first_and_lists_the_messages_of_each() -> None:
    producer, chunk = Producer(), [(b"all", 5)]
    queue = queue_of(producer)
    facts = BlockFacts(schema_version=8, first_row=0), BlockFacts(schema_version=8, first_row=2)
    formed = [
        Formed(facts[0], chunk, message_rows=b"of 3"),
        Formed(facts[1], chunk, message_rows=b"of 7"),
    ]
    offsets = queue.add_shared(TopicPartition("t", 3), [seal(3), seal(7)], formed)
    queue.release()
    headers = {"seq": b"0", "rows": b"5", "schema": b"8"}
    lists = {"messages.3": b"of 3", "messages.7": b"of 7"}
    assert producer.records == [("t", 3, b"all", b"a:d.x:3:1:5", headers | lists)]
    assert offsets == [0]


def test_much_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would lie in memory beside the client's own copy until the flush."""
    monkeypatch.setattr(chunk_queue, "HELD_BYTES", 10)
    producer = Producer()
    queue = queue_of(producer)
    queue.add(TopicPartition("t", 0), seal(0), Formed(BlockFacts(), [(b"six by", 1)]))
    assert producer.records == []
    queue.add(TopicPartition("t", 1), seal(1), Formed(BlockFacts(), [(b"four", 1)]))
    assert len(producer.records) == 2
    queue.release()
    assert len(producer.records) == 2
