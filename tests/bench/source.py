"""Topics and what fills them: the same messages for every contender.

Receives a broker, gives a filled source topic; also makes and removes the topics of
single runs. Never measures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from relay import names
from relay.config import kafka_clients, settings
from relay.errors import Unavailable
from tests.bench import rows
from tests.bench.answers import answered

PARTITIONS = 4
_WAVE = 100_000  # rows made at once: bounds memory, and interleaves the tables
_ANSWER_SECONDS = 30.0
_LOOK_SECONDS = 0.1


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
    shape: rows.Shape = rows.DEFAULT
    partitions: int = PARTITIONS


class Sent(NamedTuple):
    """Messages that were handed to a producer.

    Attributes:
        bad: how many of them were spoiled.
        bytes: of their values.
    """

    messages: int
    bad: int
    bytes: int


def fill(
    bootstrap: str,
    topic: str,
    total: int,
    per_message: int,
    spoil: Spoil | None = None,
    shape: rows.Shape = rows.DEFAULT,
    partitions: int = PARTITIONS,
) -> Source:
    """Writes `total` rows of all tables, interleaved, `per_message` in each message.

    Raises:
        Unavailable: the broker did not take them all.
    """
    create_topics(bootstrap, [topic], partitions)
    lost: list[str] = []
    producer = make_producer(bootstrap, lost)
    shares = [share(total * weight, per_message) for weight in shape.weights]
    sent = send(producer, topic, shares, per_message, spoil, shape=shape, partitions=partitions)
    flush(producer, topic, lost)
    return Source(
        *(bootstrap, topic, sum(shares), sent.messages, per_message),
        *(sent.bad, shape, partitions),
    )


def send(
    producer: Producer,
    topic: str,
    shares: list[int],
    per_message: int,
    spoil: Spoil | None = None,
    *,
    shape: rows.Shape = rows.DEFAULT,
    partitions: int = PARTITIONS,
    begin: int = 0,
    delimited: bool = False,
) -> Sent:
    """Hands so many rows of each table to the producer, from row `begin` on.

    `delimited`: each message begins with its length, as the Kafka engine wants it.
    """
    codecs = [rows.codec(table, shape) for table in shape.names]
    headers = [table_header(table) for table in shape.names]
    sent = bad = size = turn = 0
    for wave in _waves(shares, per_message):
        made = [
            rows.values(codec, rows.columns(begin + first, count, shape), per_message)
            if count
            else []
            for codec, (first, count) in zip(codecs, wave, strict=True)
        ]
        for values in zip_longest(*made):
            # One message of each table to a partition, then the next partition.
            for table, value in enumerate(values):
                if value is None:
                    continue
                whole = rows.delimited(value) if delimited else value
                spoiled = spoil(sent, whole, headers[table]) if spoil else None
                chosen = spoiled or (whole, headers[table])
                produce(producer, topic, turn % partitions, *chosen)
                sent += 1
                bad += spoiled is not None
                size += len(chosen[0])
            turn += 1
    return Sent(sent, bad, size)


def share(total: float, per_message: int) -> int:
    """Rows of a table: whole messages, at least one."""
    return max(1, round(total / per_message)) * per_message


def _waves(shares: list[int], per_message: int) -> Iterator[list[tuple[int, int]]]:
    """(first row, rows) of each table in turn, whole messages, together `_WAVE` at most or so."""
    many = -(-sum(shares) // _WAVE)
    for wave in range(many):
        cuts = [
            [share // per_message * at // many * per_message for at in (wave, wave + 1)]
            for share in shares
        ]
        yield [(first, end - first) for first, end in cuts]


def table_header(table: str) -> Header:
    """What names a message's table."""
    return [(names.TABLE_HEADER, table.encode())]


def make_producer(bootstrap: str, lost: list[str], **more: object) -> Producer:
    """A producer for a source topic; what the broker refuses is put into `lost`.

    Args:
        bootstrap: of the broker.
        lost: a list to be filled.
        more: the client's settings, with underscores instead of points.
    """

    def delivered(problem: object, _message: object) -> None:
        if problem is not None:
            lost.append(str(problem))

    return Producer({
        **kafka_clients.plain_producer(settings.Kafka(bootstrap=bootstrap)),
        # Compression would cost each reader the same; without it disk and page cache decide less.
        "compression.type": "none",
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 512_000,
        "on_delivery": delivered,
        **{name.replace("_", "."): value for name, value in more.items()},
    })  # fmt: skip


def flush(producer: Producer, topic: str, lost: list[str]) -> None:
    """Until the broker has all.

    Raises:
        Unavailable: it did not take them.
    """
    left = producer.flush(_ANSWER_SECONDS * 4)
    if left or lost:
        raise Unavailable(
            f"{left} messages of the source topic {topic} were not taken, {len(lost)} refused"
            f" ({lost[0] if lost else 'no answer'})",
            "look into the broker's log and at the free disk space",
        )


def produce(producer: Producer, topic: str, partition: int, value: bytes, headers: Header) -> None:
    """Hands a message over, when there is room for it."""
    while True:
        try:
            producer.produce(topic, value=value, partition=partition, headers=headers)  # type: ignore[arg-type]
        except BufferError:
            producer.poll(1.0)  # returns as soon as something was delivered
        else:
            producer.poll(0)
            return


def create_topics(bootstrap: str, topics: list[str], partitions: int = PARTITIONS) -> None:
    """Topics that must not be there yet."""
    admin = _admin(bootstrap)  # held until the answers are there: its end would cancel them
    made = admin.create_topics(
        [NewTopic(topic, partitions, 1) for topic in topics], operation_timeout=_ANSWER_SECONDS
    )
    with answered("new topics"):
        for future in made.values():
            future.result()


def delete_topics(bootstrap: str, prefix: str) -> None:
    """All topics whose name starts with the prefix: a run's output, so that disks stay empty."""
    admin = _admin(bootstrap)
    with answered("an end of topics"):
        known = admin.list_topics(timeout=_ANSWER_SECONDS).topics
        doomed = [topic for topic in known if topic.startswith(prefix)]
        if doomed:
            gone = admin.delete_topics(doomed, operation_timeout=_ANSWER_SECONDS)
            for future in gone.values():
                future.result()


def end_offsets(bootstrap: str, topics: list[str]) -> int:
    """Sum of the end offsets over the topics' partitions; transaction markers count too."""
    ends = EndOffsets(bootstrap, topics)
    try:
        return ends()
    finally:
        ends.close()


class EndOffsets:
    """How much has been written to topics; asked often, by one client.

    Raises:
        Unavailable: one of the topics is not there: it would count as empty; or, when it is asked,
            the broker does not answer.
    """

    def __init__(self, bootstrap: str, topics: list[str]) -> None:
        self._consumer = _looker(bootstrap, "bench-ends")
        known = self._topics()
        deadline = time.monotonic() + _ANSWER_SECONDS
        while missing := set(topics) - known.keys():  # the broker may have just made them
            if time.monotonic() > deadline:
                raise Unavailable(f"no topic {', '.join(sorted(missing))}", "look into its log")
            time.sleep(_LOOK_SECONDS)
            known = self._topics()
        self._places = [TopicPartition(t, p) for t in topics for p in known[t].partitions]

    def _topics(self) -> dict[str, Any]:
        with answered("its topics"):
            return self._consumer.list_topics(timeout=_ANSWER_SECONDS).topics

    def __call__(self) -> int:
        """Sum of the end offsets; transaction markers count too."""
        ask = self._consumer.get_watermark_offsets
        with answered(f"the end of {self._places[0].topic}"):
            return sum(ask(place, timeout=_ANSWER_SECONDS)[1] for place in self._places)

    def close(self) -> None:
        """Ends the client; it never joined a group."""
        self._consumer.close()


class CommittedOffsets:
    """How far a consumer group has committed in a source topic.

    Each contender commits its offsets in the transaction that shows its output, so a
    message counts when, and only when, what was made of it is visible.
    """

    def __init__(
        self, bootstrap: str, group: str, topic: str, partitions: int = PARTITIONS
    ) -> None:
        self._consumer = _looker(bootstrap, group)
        self._partitions = [TopicPartition(topic, p) for p in range(partitions)]

    def __call__(self) -> int:
        """Messages committed; 0 before the first commit."""
        return sum(self.each())

    def each(self) -> list[int]:
        """The same by partition."""
        with answered("committed offsets"):
            try:
                found = self._consumer.committed(self._partitions, timeout=_ANSWER_SECONDS)
            except KafkaException as problem:
                if problem.args[0].code() != KafkaError.NOT_COORDINATOR:
                    raise
                # The group has just been made, and nothing is committed to it.
                return [0] * len(self._partitions)
        return [max(0, partition.offset) for partition in found]

    def close(self) -> None:
        """Ends the client; it never joined the group."""
        self._consumer.close()


def _admin(bootstrap: str) -> Any:
    # Its end is logged as a notice each time (6); warnings (4) and worse are still shown.
    quiet = {"log_level": 4}
    return AdminClient({**kafka_clients.admin(settings.Kafka(bootstrap=bootstrap)), **quiet})


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
