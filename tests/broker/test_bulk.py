"""relay.intake.bulk gives what the Python binding gives, message by message, and nothing else."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from relay.arrow.byte_column import ByteColumn
from relay.intake.bulk import Bulk, PolledError, WhenFull
from relay.intake.message_batch import Batch, Headers, TableHeaders, of_messages
from relay.kafka import librdkafka
from tests.bench.source import PARTITIONS, create_topics
from tests.broker.pipeline import is_stable, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNT = 5_000
MOST = 1_000
SECONDS = 60.0

Seen = tuple[int, str, bytes | None, bytes | None, Any, int]
"""Offset, table, value, key, headers where they are not plain, timestamp."""


def sent(chance: random.Random) -> list[tuple[Headers, bytes | None, bytes | None]]:
    """Headers, value and key of every kind."""
    tables = [f"d.t{number}".encode() for number in range(40)] + [b"d." + b"x" * 90]
    odd: list[Headers] = [
        None,
        [],
        [("table", None)],
        [("table", b"")],
        [("table", b"no table")],
        [("table", b"\xff\xfe")],
        [("tables", b"d.t1")],
        [("tabl", b"d.t1")],
        [("", b"d.t1")],
        [("trace", b"1"), ("table", b"d.t1")],
        [("table", b"d.t1"), ("trace", None)],
        [("table", b"d.t1"), ("table", b"d.t1")],
        [("täble", b"d.t1")],
    ]
    values: list[bytes | None] = [None, b"", b"\0", b"v" * 7, b"w" * 8, b"x" * 70, b"y" * 30_000]
    keys: list[bytes | None] = [None, None, b"", b"k", b"\xff" * 9]
    found = []
    for _ in range(COUNT):
        plain: Headers = [("table", chance.choice(tables))]
        headers = plain if chance.random() < 0.8 else chance.choice(odd)
        found.append((headers, chance.choice(values), chance.choice(keys)))
    return found


@pytest.fixture(scope="module")
def topic(bootstrap: str) -> str:
    """Messages of every kind, some of them in transactions, every third of which was aborted."""
    name = f"bulk-{random.randrange(1 << 30)}"
    create_topics(bootstrap, [name])
    chance = random.Random(7)
    plain = Producer({"bootstrap.servers": bootstrap, "compression.type": "lz4"})
    transactional = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    transactional.init_transactions(SECONDS)
    messages = sent(chance)
    for at in range(0, COUNT, 100):
        number = at // 100
        producer = transactional if number % 2 else plain
        if number % 2:
            transactional.begin_transaction()
        for headers, value, key in messages[at : at + 100]:
            partition = chance.randrange(PARTITIONS)
            producer.produce(name, value, key, partition, headers=headers or [])
        if number % 2 and number % 3:
            transactional.commit_transaction(SECONDS)
        elif number % 2:
            transactional.flush(SECONDS)
            transactional.abort_transaction(SECONDS)
        assert producer.flush(SECONDS) == 0
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wait_until(lambda: is_stable(admin, *places(name)), "the markers of the transactions")
    return name


def consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"bulk-{random.randrange(1 << 30)}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )


def places(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]


def seen(batch: Batch, tables: TableHeaders) -> Iterator[tuple[int, Seen]]:
    """What each message of a batch holds, with its partition; copied, as it would be gone."""
    whole = ByteColumn(), ByteColumn()
    every = np.arange(len(batch.offsets))
    whole[0].extend(batch.values, batch.value_sizes, every, batch.gather)
    whole[1].extend(batch.keys, batch.key_sizes, every, batch.gather)
    for at in every.tolist():
        yield (
            int(batch.partitions[at]),
            (
                int(batch.offsets[at]),
                tables.tables[int(batch.numbers[at])],
                whole[0][at],
                whole[1][at],
                batch.headers.get(at),
                batch.timestamp(at),
            ),
        )


def by_binding(bootstrap: str, topic: str, ends: dict[int, int]) -> dict[int, list[Seen]]:
    tables = TableHeaders()
    found: dict[int, list[Seen]] = {partition: [] for partition in range(PARTITIONS)}
    reader = consumer(bootstrap)
    reader.assign(places(topic))
    deadline = time.monotonic() + SECONDS
    while any(at.offset < ends[at.partition] for at in reader.position(places(topic))):
        assert time.monotonic() < deadline
        messages = reader.consume(MOST, 0.2)
        for partition, one in seen(of_messages(messages, tables), tables):
            found[partition].append(one)
    reader.close()
    return found


def in_bulk(bootstrap: str, topic: str, ends: dict[int, int]) -> dict[int, list[Seen]]:
    tables = TableHeaders()
    found: dict[int, list[Seen]] = {partition: [] for partition in range(PARTITIONS)}
    reader = consumer(bootstrap)
    queue = Bulk(reader, topic, tables, MOST)
    queue.own(range(PARTITIONS))
    reader.assign(places(topic))
    deadline = time.monotonic() + SECONDS
    while any(at.offset < ends[at.partition] for at in reader.position(places(topic))):
        assert time.monotonic() < deadline
        assert reader.consume(1, 0) == []
        queue.begin()
        for _ in range(3):  # as a poll of several batches
            batch, failed, _ = queue.poll(MOST // 3, 0.2)
            assert not failed
            for partition, one in seen(batch, tables):
                found[partition].append(one)
    queue.close()
    reader.close()
    return found


@pytest.fixture(scope="module")
def ends(bootstrap: str, topic: str) -> dict[int, int]:
    reader = consumer(bootstrap)
    found = {
        place.partition: reader.get_watermark_offsets(place, timeout=SECONDS)[1]
        for place in places(topic)
    }
    reader.close()
    return found


def test_it_gives_what_the_binding_gives(bootstrap: str, topic: str, ends: dict[int, int]) -> None:
    assert librdkafka.unsupported() == ""
    expected = by_binding(bootstrap, topic, ends)
    assert sum(map(len, expected.values())) > COUNT / 2
    assert in_bulk(bootstrap, topic, ends) == expected


def test_a_seek_throws_away_what_was_fetched(bootstrap: str, topic: str) -> None:
    """Messages of before it that lie in the queue are not given any more, and the others are."""
    tables = TableHeaders()
    reader = consumer(bootstrap)
    queue = Bulk(reader, topic, tables, MOST)
    queue.own(range(PARTITIONS))
    reader.assign(places(topic))
    offsets = polled(queue, 0)
    middle = offsets[len(offsets) // 2]
    reader.seek(TopicPartition(topic, 0, middle))
    again = polled(queue, 0)
    assert again[0] == middle
    assert again == sorted(set(again))
    queue.close()
    reader.close()


def test_what_is_assigned_again_comes_again(bootstrap: str, topic: str) -> None:
    """As in a rebalance; librdkafka forgets at its end where the messages were to go."""
    reader = consumer(bootstrap)
    queue = Bulk(reader, topic, TableHeaders(), MOST)
    assigned_again(reader, queue, topic, SECONDS)
    queue.close()
    reader.close()


def test_control_said_once_it_is_forgotten(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = consumer(bootstrap)
    queue = Bulk(reader, topic, TableHeaders(), MOST)
    queue.own(range(PARTITIONS))
    monkeypatch.setattr(queue, "_forward", lambda: None)
    with pytest.raises(AssertionError, match="nothing came"):
        assigned_again(reader, queue, topic, 3.0)
    queue.close()
    reader.close()


def assigned_again(reader: Consumer, queue: Bulk, topic: str, seconds: float) -> None:
    for _ in range(20):
        queue.own(range(PARTITIONS))
        reader.assign(places(topic))
        assert polled(queue, 0, seconds)[0] == 0
        reader.unassign()


def polled(queue: Bulk, partition: int, seconds: float = SECONDS) -> list[int]:
    """Offsets of one poll that holds messages of this partition."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        queue.begin()
        batch, _, _ = queue.poll(MOST, 0.2)
        offsets = [int(at) for at in batch.offsets[batch.partitions == partition]]
        if offsets:
            return offsets
    raise AssertionError(f"nothing came of partition {partition}")


def test_an_error_comes_as_the_binding_says_it(
    bootstrap: str, topic: str, ends: dict[int, int]
) -> None:
    nowhere = TopicPartition(topic, 0, ends[0] + 1_000)
    by_binding, reader = consumer(bootstrap), consumer(bootstrap)
    by_binding.assign([nowhere])
    queue = Bulk(reader, topic, TableHeaders(), MOST)
    queue.own([0])
    reader.assign([nowhere])
    deadline = time.monotonic() + SECONDS
    expected: list[Any] = []
    while not expected and time.monotonic() < deadline:
        expected = by_binding.consume(1, 0.2)
    failed: list[PolledError] = []
    while not failed and time.monotonic() < deadline:
        batch, failed, _ = queue.poll(MOST, 0.2)
        assert not len(batch.offsets)
    said = [(one.partition, one.error.name(), one.error.str()) for one in failed]
    by_other = [(one.partition(), one.error().name(), one.error().str()) for one in expected]
    assert said == by_other
    assert said[0][:2] == (0, "_AUTO_OFFSET_RESET")
    queue.close()
    reader.close()
    by_binding.close()


def test_a_version_that_is_not_known_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: "2.99.0")
    assert "2.99.0" in librdkafka.unsupported()


def test_what_is_no_consumer_is_not_taken_for_one(bootstrap: str) -> None:
    producer: Any = Producer({"bootstrap.servers": bootstrap})
    with pytest.raises(AssertionError, match=r"no consumer's handle: .*producer"):
        Bulk(producer, "topic", TableHeaders(), MOST)


def test_from_the_first_full_poll_on_and_nothing_lost(
    bootstrap: str, topic: str, ends: dict[int, int]
) -> None:
    """The source begins with the binding; what that has queued comes before what bulk gets."""
    expected = by_binding(bootstrap, topic, ends)
    tables = TableHeaders()
    found: dict[int, list[Seen]] = {partition: [] for partition in range(PARTITIONS)}
    reader = consumer(bootstrap)
    bulk = WhenFull(reader, topic, tables, MOST)
    bulk.own(range(PARTITIONS))
    reader.assign(places(topic))
    began, full = 0, False
    deadline = time.monotonic() + SECONDS
    while any(at.offset < ends[at.partition] for at in reader.position(places(topic))):
        assert time.monotonic() < deadline
        queue = bulk.begin(full=full)
        began += queue is not None
        messages = reader.consume(MOST // 10, 0.2 if queue is None else 0)
        full = full or len(messages) == MOST // 10
        for partition, one in seen(of_messages(messages, tables), tables):
            found[partition].append(one)
        if queue is not None and not messages:
            batch, failed, _ = queue.poll(MOST // 10, 0.2)
            assert not failed
            for partition, one in seen(batch, tables):
                found[partition].append(one)
    assert began, "it never came to bulk"
    assert found == expected
    bulk.close()
    reader.close()
