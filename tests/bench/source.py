"""Topics and what fills them: the same messages for every contender.

Receives a broker, gives a filled source topic; also makes and removes the topics of
single runs. Never measures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from relay import kafka_settings, names, settings
from relay.errors import Unavailable
from tests.bench import rows

PARTITIONS = 4
_WAVE = 100_000  # rows made at once: bounds memory, and interleaves the tables
_ANSWER_SECONDS = 30.0


Header = list[tuple[str, bytes]]
Spoil = Callable[[int, bytes, Header], tuple[bytes, Header] | None]
"""From a message's number, value and headers to those of the bad one that is sent instead, or
None for a good one."""


@dataclass(frozen=True, slots=True)
class Source:
    """A filled source topic; `rows` and `messages` count bad messages too."""

    bootstrap: str
    topic: str
    rows: int
    messages: int
    per_message: int
    bad: int = 0


def fill(
    bootstrap: str, topic: str, total: int, per_message: int, spoil: Spoil | None = None
) -> Source:
    """Writes `total` rows of all tables, interleaved, `per_message` in each message.

    Raises:
        Unavailable: the broker did not take them all.
    """
    create_topics(bootstrap, [topic])
    lost: list[str] = []

    def delivered(problem: object, _message: object) -> None:
        if problem is not None:
            lost.append(str(problem))

    producer = Producer({
        **kafka_settings.plain_producer(settings.Kafka(bootstrap=bootstrap)),
        # Compression would cost each reader the same; without it disk and page cache decide less.
        "compression.type": "none",
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 512_000,
        "on_delivery": delivered,
    })  # fmt: skip
    codecs = [rows.codec(table) for table in rows.TABLES]
    headers: list[Header] = [[(names.TABLE_HEADER, table.encode())] for table in rows.TABLES]
    each = _share(total, per_message)
    sent = bad = 0
    for first in range(0, each, _WAVE // len(rows.TABLES)):
        count = min(_WAVE // len(rows.TABLES), each - first)
        made = [rows.messages(codec, first, count, per_message) for codec in codecs]
        for value in chain.from_iterable(zip(*made, strict=True)):
            # One message of each table to a partition, then the next partition.
            table, partition = sent % len(made), sent // len(made) % PARTITIONS
            spoiled = spoil(sent, value, headers[table]) if spoil else None
            _produce(producer, topic, partition, *(spoiled or (value, headers[table])))
            sent += 1
            bad += spoiled is not None
    left = producer.flush(_ANSWER_SECONDS * 4)
    if left or lost:
        raise Unavailable(
            f"{left} messages of the source topic {topic} were not taken, {len(lost)} refused"
            f" ({lost[0] if lost else 'no answer'})",
            "look into the broker's log and at the free disk space",
        )
    return Source(bootstrap, topic, each * len(codecs), sent, per_message, bad)


def _share(total: int, per_message: int) -> int:
    """Rows of each table: whole messages, at least one."""
    return max(1, round(total / len(rows.TABLES) / per_message)) * per_message


def _produce(producer: Producer, topic: str, partition: int, value: bytes, headers: Header) -> None:
    while True:
        try:
            producer.produce(topic, value=value, partition=partition, headers=headers)  # type: ignore[arg-type]
        except BufferError:
            producer.poll(1.0)  # returns as soon as something was delivered
        else:
            producer.poll(0)
            return


def create_topics(bootstrap: str, topics: list[str]) -> None:
    """Topics of `PARTITIONS` partitions that must not be there yet."""
    admin = _admin(bootstrap)  # held until the answers are there: its end would cancel them
    made = admin.create_topics(
        [NewTopic(topic, PARTITIONS, 1) for topic in topics], operation_timeout=_ANSWER_SECONDS
    )
    for future in made.values():
        future.result()


def delete_topics(bootstrap: str, prefix: str) -> None:
    """All topics whose name starts with the prefix: a run's output, so that disks stay empty."""
    admin = _admin(bootstrap)
    doomed = [t for t in admin.list_topics(timeout=_ANSWER_SECONDS).topics if t.startswith(prefix)]
    if doomed:
        gone = admin.delete_topics(doomed, operation_timeout=_ANSWER_SECONDS)
        for future in gone.values():
            future.result()


def end_offsets(bootstrap: str, topics: list[str]) -> int:
    """Sum of the end offsets over the topics' partitions; transaction markers count too."""
    consumer = _looker(bootstrap, "bench-ends")
    try:
        known = consumer.list_topics(timeout=_ANSWER_SECONDS).topics
        return sum(
            consumer.get_watermark_offsets(TopicPartition(t, p), timeout=_ANSWER_SECONDS)[1]
            for t in topics
            if t in known
            for p in known[t].partitions
        )
    finally:
        consumer.close()


class CommittedOffsets:
    """How far a consumer group has committed in a source topic.

    Each contender commits its offsets in the transaction that shows its output, so a
    message counts when, and only when, what was made of it is visible.
    """

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._consumer = _looker(bootstrap, group)
        self._partitions = [TopicPartition(topic, p) for p in range(PARTITIONS)]

    def __call__(self) -> int:
        """Messages committed; 0 before the first commit."""
        try:
            found = self._consumer.committed(self._partitions, timeout=_ANSWER_SECONDS)
        except KafkaException as problem:
            if problem.args[0].code() == KafkaError.NOT_COORDINATOR:
                return 0  # the group has just been made, and nothing is committed to it
            raise Unavailable(
                f"the broker does not say what is committed: {problem}", "look into its log"
            ) from problem
        return sum(max(0, partition.offset) for partition in found)

    def close(self) -> None:
        """Ends the client; it never joined the group."""
        self._consumer.close()


def _admin(bootstrap: str) -> Any:
    # Its end is logged as a notice each time (6); warnings (4) and worse are still shown.
    quiet = {"log_level": 4}
    return AdminClient({**kafka_settings.admin(settings.Kafka(bootstrap=bootstrap)), **quiet})


def _looker(bootstrap: str, group: str) -> Consumer:
    # read_uncommitted: otherwise the broker answers only while no transaction is open, and a
    # sample would wait for the very commit that it is to time.
    return Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "isolation.level": "read_uncommitted",
        "enable.auto.commit": False,
        "allow.auto.create.topics": False,
    })  # fmt: skip
