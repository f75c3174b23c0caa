"""A source topic whose rows all come at one moment: they lie behind a transaction that is open.

Receives a broker and sizes, writes a few rows that can be read at once and all others in a second
transaction; `release` commits it. So a consumer can start, join and show that it is ready before
the rows that are measured exist for it, and whoever writes them costs nothing while it works.
"""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import KafkaException

from relay.errors import Unavailable
from tests.bench import rows
from tests.bench import source as sources

WARM_MESSAGES = 8
"""Of each table: two in each of four partitions."""
_TRANSACTION_SECONDS = 600
"""So long the second transaction may be open; a broker allows 900 as shipped."""
_ANSWER_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Size:
    """What lies in the topic.

    Attributes:
        total: rows that come at one moment.
        delimited: each message begins with its length.
        warm_messages: of each table, to be read at once; in each partition some.
    """

    total: int
    per_message: int
    shape: rows.Shape
    partitions: int
    delimited: bool
    warm_messages: int = WARM_MESSAGES

    @property
    def warm(self) -> int:
        """Rows of each table that can be read at once."""
        return self.warm_messages * self.per_message

    @property
    def ends(self) -> list[int]:
        """Number behind each table's last row."""
        return [self.warm + share for share in self.shares]

    @property
    def shares(self) -> list[int]:
        """Rows of each table that come at one moment."""
        return [
            sources.share(self.total * weight, self.per_message) for weight in self.shape.weights
        ]


class Backlog:
    """The topic, made and filled.

    Attributes:
        bytes: of the messages that come at one moment.

    Raises:
        Unavailable: the broker did not take it.
    """

    def __init__(self, bootstrap: str, topic: str, size: Size) -> None:
        self.size, self.topic = size, topic
        self._lost: list[str] = []
        sources.create_topics(bootstrap, [topic], size.partitions)
        self._producer = sources.make_producer(
            bootstrap,
            self._lost,
            transactional_id=f"bench-{topic}",
            transaction_timeout_ms=_TRANSACTION_SECONDS * 1000,
        )
        try:
            self._producer.init_transactions(_ANSWER_SECONDS)
            self._write([size.warm] * size.shape.tables, 0)
            self._producer.commit_transaction(_ANSWER_SECONDS)
            self.bytes = self._write(size.shares, size.warm)
        except KafkaException as problem:
            raise _refused(topic, problem) from problem

    def release(self) -> None:
        """Let consumers read all of it, from now on."""
        try:
            self._producer.commit_transaction(_ANSWER_SECONDS)
        except KafkaException as problem:
            raise _refused(self.topic, problem) from problem

    def _write(self, shares: list[int], begin: int) -> int:
        """How many bytes they are."""
        size = self.size
        self._producer.begin_transaction()
        sent = sources.send(
            *(self._producer, self.topic, shares, size.per_message),
            shape=size.shape,
            partitions=size.partitions,
            begin=begin,
            delimited=size.delimited,
        )
        sources.flush(self._producer, self.topic, self._lost)
        return sent.bytes


def _refused(topic: str, problem: KafkaException) -> Unavailable:
    return Unavailable(
        f"the source topic {topic} is not written: {problem.args[0].str()}",
        "look into the broker's log and at the free disk space",
    )
