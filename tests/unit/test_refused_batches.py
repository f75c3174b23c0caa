"""What becomes of a topic that refused a batch as too large: how its next records are sent.

The client in these tests makes batches as librdkafka's msgset writer (2.16) does: a record joins
those of its partition that wait, while all are no more than batch.size; one that is larger has no
company.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

from relay import names
from relay.core.events import Failure
from relay.kafka.block_topics import BlockTopics
from relay.kafka.errors import TransactionFailed
from relay.kafka.record_limits import ROOM
from relay.kafka.transactional_producer import TransactionalProducer
from relay.operate.metrics.observer import NOTHING
from relay.process.producers import MemberProducer, PartitionProducers
from tests import reach
from tests.unit.test_block_topics import Topics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TABLE = "d.t"
BLOCKS, DEAD = names.blocks_topic("shop", TABLE), names.dead_topic("shop")
BATCH_BYTES, MOST = 900_000, 1 << 30
OVERHEAD = 100
"""Bytes of a batch, and of each record in it."""


class Brokers(Topics):
    """Brokers that take batches of limited size.

    Attributes:
        limits: by topic, bytes of a batch.
        tells: whether this user may ask for them.
        asked: topics of each question for the limit.
        batches: number of records in each that was taken, by topic.
        waits: how often a client waited for what it had been given.
    """

    def __init__(self, *, tells: bool) -> None:
        super().__init__(BLOCKS)
        self.limits, self.tells = {BLOCKS: MOST, DEAD: MOST}, tells
        self.asked: list[str] = []
        self.batches = defaultdict[str, list[int]](list)
        self.waits = 0

    def most_bytes(self, topic: str) -> int | None:
        self.asked.append(topic)
        return self.limits[topic] if self.tells else None

    def least_in_sync(self, _: object) -> dict[str, int]:
        return {}

    def client(self, config: Mapping[str, Any]) -> Client:
        return Client(self, config)


class Client:
    """librdkafka's producer, as far as it is asked."""

    def __init__(self, brokers: Brokers, config: Mapping[str, Any]) -> None:
        self._brokers, self._config = brokers, config
        self._waiting = defaultdict[tuple[str, int], list[tuple[int, Any]]](list)

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes,
        partition: int,
        report: Any,
        *,
        headers: list[tuple[str, bytes]],
    ) -> None:
        assert not headers
        size = len(value or b"") + len(key) + OVERHEAD
        self._waiting[topic, partition].append((size, report))

    def flush(self, _: float) -> int:
        self._brokers.waits += 1
        waiting, self._waiting = self._waiting, defaultdict(list)
        for (topic, partition), records in waiting.items():
            while records:
                self._deliver(topic, partition, _batch(records, int(self._config["batch.size"])))
        return 0

    def _deliver(self, topic: str, partition: int, batch: list[tuple[int, Any]]) -> None:
        refused = None
        if OVERHEAD + sum(size for size, _ in batch) > self._brokers.limits.get(topic, MOST):
            refused = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
        else:
            self._brokers.batches[topic].append(len(batch))
        for _, report in batch:
            report(refused, Message(topic=topic, partition=partition, offset=0))

    def commit_transaction(self, _: float) -> None:
        self._config["logger"].log(logging.DEBUG, "", "TXNEND", "", "EndTxn returned NO_ERROR ()")

    abort_transaction = commit_transaction

    def init_transactions(self, *_: float) -> None: ...
    def begin_transaction(self) -> None: ...
    def purge(self) -> None: ...
    def poll(self, _: float) -> int:
        return 0


def _batch(records: list[tuple[int, Any]], most: int) -> list[tuple[int, Any]]:
    """Take the first records, as many as fit."""
    batch = [records.pop(0)]
    while records and OVERHEAD + sum(size for size, _ in [*batch, records[0]]) <= most:
        batch.append(records.pop(0))
    return batch


class Relay:
    """Sends records of one source partition, each time as a relay does behind a failure.

    Args:
        crosses: whether the source is in another cluster.
    """

    def __init__(self, brokers: Brokers, *, crosses: bool = False) -> None:
        given = reach.nobody()
        client = {"batch.size": BATCH_BYTES}
        kafka = given.kafka.model_copy(update={"client": client})
        source = given.source.model_copy(update={"kafka": kafka} if crosses else {})
        settings = given.model_copy(update={"kafka": kafka, "source": source})
        faked: Any = brokers
        self.topics = BlockTopics("shop", faked)
        self.topics.ensure([TABLE])
        self._crosses = settings.crosses
        kind = PartitionProducers if crosses else MemberProducer
        self._producers = kind(settings, NOTHING, self.topics)
        self._replace()

    def _replace(self) -> None:
        self._producers.start()
        if self._crosses:
            self._producers.fence({0})

    def _producer(self) -> TransactionalProducer:
        return self._producers.of(0 if self._crosses else None)

    def tries(self, topic: str, values: Callable[[], list[int]]) -> int:
        """Send records of these sizes until all are there; return in which try they were.

        Args:
            topic: of all.
            values: asked for their sizes at each try: what was learned may have changed them.
        """
        for number in range(1, 30):
            producer = self._producer()
            try:
                producer.begin("a member")
                for size in values():
                    producer.produce(TopicPartition(topic, 0), bytes(size), b"", [], lambda _: None)
                producer.flush()
                producer.commit()
            except TransactionFailed as failed:
                self._learn(failed)
            else:
                return number
        raise AssertionError("it is tried for ever")

    def _learn(self, failed: TransactionFailed) -> None:
        assert failed.kind is Failure.REFUSED
        assert self.topics.learn(failed, [TABLE]), "the relay would end"
        assert not self.topics.refusal(TABLE)
        self._replace()

    def chunks(self, total: int, wanted: int) -> list[int]:
        """Return the sizes of so many bytes' chunks: halved while the topic takes no such one."""
        most = self.topics.limits.most(BLOCKS)
        while most is not None and wanted > most - ROOM:
            wanted //= 2
        return [min(wanted, total - at) for at in range(0, total, wanted)]


@pytest.fixture(params=[False, True], ids=["one cluster", "two clusters"])
def crosses(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=[False, True], ids=["not told", "told"])
def brokers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Brokers:
    made = Brokers(tells=bool(request.param))
    monkeypatch.setattr("relay.kafka.transactional_producer.Producer", made.client)
    return made


def test_what_was_refused_is_not_tried_for_ever(brokers: Brokers, *, crosses: bool) -> None:
    """Red before, across clusters: the producer that knew of the refusal was closed behind it, the
    next one sent the same two chunks of 390 kB in one batch again, and all tables stood."""
    brokers.limits[BLOCKS] = 400_000
    relay = Relay(brokers, crosses=crosses)
    assert relay.tries(BLOCKS, lambda: relay.chunks(1_560_000, 780_000)) <= 5
    assert sum(brokers.batches[BLOCKS]) == len(brokers.batches[BLOCKS]), "each by itself"
    assert relay.tries(BLOCKS, lambda: relay.chunks(1_560_000, 780_000)) == 1


def test_a_record_that_is_too_large_is_found_among_others(
    brokers: Brokers, *, crosses: bool
) -> None:
    """Red before, across clusters: where brokers tell no limit it never was by itself."""
    brokers.limits[BLOCKS] = 250_000
    relay = Relay(brokers, crosses=crosses)

    def sizes() -> list[int]:
        most = relay.topics.limits.most(BLOCKS)
        return [10_000] * 5 + ([] if most and most < 300_000 else [300_000]) + [10_000] * 5

    assert relay.tries(BLOCKS, sizes) <= 6


@pytest.mark.parametrize("limit", [20_000, 100_000, 400_000])
def test_many_small_records_still_share_batches(
    brokers: Brokers, limit: int, *, crosses: bool
) -> None:
    """One by one they would outlast the transaction. Red before: each was waited for."""
    brokers.limits[DEAD] = limit
    relay = Relay(brokers, crosses=crosses)
    letters = [300] * 5_000
    assert relay.tries(DEAD, lambda: letters) <= 7
    brokers.waits = 0
    assert relay.tries(DEAD, lambda: letters) == 1
    assert brokers.waits <= 1 + 2 * len(letters) * (300 + ROOM) / limit


def test_a_limit_that_was_raised_parts_no_batches_any_more(brokers: Brokers) -> None:
    brokers.limits[BLOCKS] = 400_000
    relay = Relay(brokers)
    assert relay.tries(BLOCKS, lambda: [390_000] * 4) > 1
    brokers.limits[BLOCKS] = 1_000_000
    brokers.tells = True
    relay.topics.retry()
    brokers.waits = 0
    assert relay.tries(BLOCKS, lambda: [390_000] * 4) == 1
    assert brokers.waits == 1
    assert brokers.batches[BLOCKS][-2:] == [2, 2]


def test_a_record_as_large_as_a_batch_says_nothing_of_batches(brokers: Brokers) -> None:
    """Red before: every later record to the topic waited for the one before it."""
    brokers.limits[DEAD] = 2_000_000
    relay = Relay(brokers)
    small = [300] * 1_000

    def letters() -> list[int]:
        most = relay.topics.limits.most(DEAD)
        return [*small, 300 if most else 3_000_000, *small]

    assert relay.tries(DEAD, letters) == 2
    assert brokers.asked == [DEAD]
    brokers.waits = 0
    assert relay.tries(DEAD, letters) == 1
    assert brokers.waits == 1
    assert brokers.batches[DEAD][-1] == len(letters())


def test_the_limit_is_asked_for_once(brokers: Brokers) -> None:
    """Red before: for each record of a refused batch, and nobody polled meanwhile."""
    brokers.limits[DEAD] = 800_000
    relay = Relay(brokers)
    assert relay.tries(DEAD, lambda: [300] * 9_000) == 2
    assert brokers.asked == [DEAD]


@pytest.mark.parametrize("size", [400_000, 950_000])
def test_a_limit_that_was_raised_just_now_costs_no_table_its_topic(
    brokers: Brokers, size: int
) -> None:
    """The brokers tell another one than the record was refused by: it is sent once more."""
    brokers.limits[BLOCKS], brokers.tells = 300_000, True
    relay = Relay(brokers)
    told = brokers.most_bytes

    def raised(topic: str) -> int | None:
        brokers.limits[BLOCKS] = 2_000_000
        return told(topic)

    brokers.most_bytes = raised  # type: ignore[method-assign]
    assert relay.tries(BLOCKS, lambda: [size] * 2) == 2
    assert relay.topics.limits.most(BLOCKS) is None
