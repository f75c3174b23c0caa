"""A consumer of partitions that it assigns itself: a member of no group.

Receives the settings of relay.config.kafka_clients.reader, gives the same as a Consumer but for one
error, and finds its brokers again (relay.kafka.reconnect). The client library demands a group id
and looks for that group's coordinator, whether it is needed or not. A user without rights on the
group is told so at a random moment, in the midst of the records that it may well read; for a reader
that says nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import ClusterMetadata  # type: ignore[attr-defined]  # documented

from relay.config.kafka_clients import ClientSettings
from relay.errors import Unavailable
from relay.kafka.reconnect import Bootstrap

OUT_OF_RANGE = frozenset({KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET})  # noqa: SLF001
"""A leader has no record at the position, and the client fetches the partition no more: retention
went past it, the log lost its end, or the leader is behind."""
_AT_ONCE = 1_000
_POLL_SECONDS = 0.05
_STABLE_SECONDS = 10.0
"""For open transactions of others to be decided."""


def records(
    reader: PartitionReader, place: TopicPartition, end: int, seconds: float
) -> Iterator[Message]:
    """Yield a partition's records from `place` on, and before `end`.

    This is the one bounded read of one partition. Five loops are like it and are not it:
    relay.process.truth bears with a leader that lags; relay.schema.registry keeps its position
    over failures, under its caller's deadline; the verifier's journal, the loader's journal and
    the loader's chunks read several partitions at once.

    The reader is assigned the partition, until all are read. `end` is an offset that the partition
    had reached, `seconds` are for the next record to come.

    Raises:
        KafkaException: what came in the place of a record.
        Unavailable: nothing came.
    """
    reader.assign([place])
    position, progressed_at = place.offset, time.monotonic()
    while position < end:
        for message in reader.consume(min(_AT_ONCE, end - position), _POLL_SECONDS):
            if (failed := message.error()) is not None:
                raise KafkaException(failed)
            if (message.offset() or 0) < end:  # others came together with the last
                yield message
        # The client's own position also passes markers and aborted records.
        now = reader.position([place])[0].offset
        if now > position:
            position, progressed_at = now, time.monotonic()
        elif time.monotonic() - progressed_at > seconds:
            raise Unavailable(
                f"{place.topic}[{place.partition}]: the brokers sent nothing for {seconds:g} s; "
                f"read to offset {position} of {end}",
                "check the brokers that lead the topic",
            )
    reader.unassign()


def begin_once_stable(
    reader: PartitionReader, place: TopicPartition, end: int, seconds: float
) -> int:
    """Wait until every transaction before `end` is decided; return the partition's first offset.

    The reader is one of committed records, and is asked for offsets alone. `end` is an offset that
    the partition had reached, uncommitted records included; `seconds` are for one request.

    Raises:
        KafkaException: no answer, or a no.
        Unavailable: a transaction stays open; the caller tries it again.
    """
    deadline = time.monotonic() + _STABLE_SECONDS
    while True:
        low, stable = reader.get_watermark_offsets(place, seconds)
        if stable >= end:
            return low
        if time.monotonic() > deadline:
            raise Unavailable(
                f"{place.topic}[{place.partition}] has an open transaction at {stable}",
                "the loader tries it again; `relay verify` names a transaction that stays open",
            )
        time.sleep(_POLL_SECONDS)


def _concerns(message: Message) -> bool:
    error = message.error()
    return error is None or error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED


class PartitionReader(Consumer):
    """Reads topics with no more right than Read on them."""

    def __init__(self, config: ClientSettings) -> None:
        self._bootstrap = Bootstrap(config)
        super().__init__(self._bootstrap.config)

    def poll(self, timeout: float = -1) -> Message | None:
        """Poll as Consumer does."""
        self._bootstrap.look(self)
        message = super().poll(timeout)
        return message if message is None or _concerns(message) else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Consume as Consumer does."""
        self._bootstrap.look(self)
        return [message for message in super().consume(num_messages, timeout) if _concerns(message)]

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """List topics as Consumer does."""
        with self._bootstrap.offering(self):
            found: ClusterMetadata = super().list_topics(topic, timeout)
            return found

    def get_watermark_offsets(
        self,
        partition: TopicPartition,
        timeout: float = -1,
        cached: bool = False,  # noqa: FBT001, FBT002 - its own
    ) -> tuple[int, int]:
        """Return the offsets as Consumer does, of the leader that is there now.

        librdkafka (2.16) calls a partition unknown that had no leader when it last heard of it,
        without asking again; it does so by the clock, every five minutes.

        Raises:
            KafkaException: LEADER_NOT_AVAILABLE where the brokers know the partition, and nobody
                leads it; _UNKNOWN_PARTITION only where they do not know it.
        """
        with self._bootstrap.offering(self):
            try:
                return super().get_watermark_offsets(partition, timeout, cached)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:  # noqa: SLF001
                    raise
                self._find_leader(partition, timeout)
            return super().get_watermark_offsets(partition, timeout, cached)

    def _find_leader(self, of: TopicPartition, timeout: float) -> None:
        topics = super().list_topics(of.topic, timeout).topics
        metadata = topics[of.topic].partitions.get(of.partition)
        if metadata is not None and metadata.leader < 0:
            nobody = f"{of.topic}[{of.partition}] has no leader"
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, nobody))
