"""What a relay says it has done, read back from its journal.

Receives an app, gives sums, and refuses a run whose good rows are not all in blocks: speed
of a relay that wrote them off as dead letters would mean nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, TopicPartition

from relay import names
from relay.config import kafka_clients, settings
from relay.errors import NotExactlyOnce, Unavailable
from relay.records_pb2 import Commit
from tests.bench.answers import answered
from tests.bench.source import PARTITIONS, Source

_ANSWER_SECONDS = 30.0


@dataclass(slots=True)
class Sums:
    """Over the whole journal."""

    blocks: int = 0
    rows: int = 0
    messages: int = 0
    dead: int = 0


def check(bootstrap: str, app: str, source: Source) -> Sums:
    """The sums, if each good message of the source is in a block, and no other.

    Raises:
        NotExactlyOnce: counts differ, or there are other dead letters than the bad messages.
    """
    sums = read(bootstrap, app, source.partitions)
    good = source.messages - source.bad
    rows = source.rows - source.bad * source.per_message
    if (sums.rows, sums.messages, sums.dead) != (rows, good, source.bad):
        raise NotExactlyOnce(
            f"{app}: {rows} rows in {good} good messages and {source.bad} bad ones were written "
            f"to {source.topic}; the journal counts {sums.rows} in {sums.messages}, and "
            f"{sums.dead} dead letters"
        )
    return sums


def read(bootstrap: str, app: str, partitions: int = PARTITIONS) -> Sums:
    """Sums over all records of the journal that are visible now.

    Raises:
        Unavailable: the broker does not give its end.
    """
    sums = Sums()
    for commit in commits(bootstrap, app, partitions):
        _add(sums, commit)
    return sums


def commits(bootstrap: str, app: str, partitions: int = PARTITIONS) -> Iterator[Commit]:
    """All records of the journal that are visible now, in order within a partition.

    Raises:
        Unavailable: the broker does not give its end.
    """
    consumer = Consumer({
        **kafka_clients.reader(settings.Kafka(bootstrap=bootstrap)),
        # The journal's last record is followed by a marker: the end is an event, not a record.
        "enable.partition.eof": True,
    })  # fmt: skip
    ended = 0
    deadline = time.monotonic() + _ANSWER_SECONDS
    try:
        topic = names.journal_topic(app)
        consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        while ended < partitions:
            message = consumer.poll(1.0)
            if time.monotonic() > deadline:
                raise Unavailable(f"the end of {topic} was not reached", "look into broker's log")
            if message is None:
                continue
            problem = message.error()
            if problem is not None:
                if problem.code() != KafkaError._PARTITION_EOF:
                    raise Unavailable(f"cannot read {topic}: {problem}", "look into broker's log")
                ended += 1
                continue
            yield Commit.FromString(message.value() or b"")
    finally:
        consumer.close()


class VisibleRows:
    """How many rows are in blocks by now; asked often, by one client.

    The committed offsets of a relay say less: its floors stay behind while a buffer is open, so
    what it has read, and even formed, before a clock starts by them would be done for nothing.
    """

    def __init__(self, bootstrap: str, app: str, partitions: int) -> None:
        self._topic, self._partitions = names.journal_topic(app), partitions
        reader = kafka_clients.reader(settings.Kafka(bootstrap=bootstrap))
        # A reader asks every 10 ms: here that would be work for the broker under test.
        self._consumer = Consumer({**reader, "fetch.wait.max.ms": 100})
        self._assigned = False
        self._sums = Sums()

    def __call__(self) -> int:
        """Rows in visible blocks; 0 before the relay has made its journal.

        Raises:
            Unavailable: the journal cannot be read.
        """
        if not self._assigned:
            with answered("its topics"):
                known = self._consumer.list_topics(timeout=_ANSWER_SECONDS).topics
            if self._topic not in known:
                return 0
            places = [TopicPartition(self._topic, p, 0) for p in range(self._partitions)]
            self._consumer.assign(places)
            self._assigned = True
        for message in self._consumer.consume(1_000, 0):
            problem = message.error()
            if problem is not None:
                raise Unavailable(f"cannot read {self._topic}: {problem}", "look into broker's log")
            _add(self._sums, Commit.FromString(message.value() or b""))
        return self._sums.rows

    def close(self) -> None:
        """Ends the client; it never joined a group."""
        self._consumer.close()


def _add(sums: Sums, commit: Commit) -> None:
    sums.blocks += len(commit.blocks)
    sums.rows += sum(block.rows for block in commit.blocks)
    sums.messages += sum(block.messages for block in commit.blocks)
    sums.dead += sum(dead.messages for dead in commit.dead)
