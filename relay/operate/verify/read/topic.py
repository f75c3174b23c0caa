"""Reads a stretch of one partition of a topic, as a read_committed reader sees it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import lru_cache

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented, not in __all__
    AdminClient,
    ConfigResource,
    ResourceType,
    TopicMetadata,
)

from relay import names
from relay.config import kafka_clients
from relay.config.settings import Brokers, Settings
from relay.errors import Unavailable
from relay.kafka.librdkafka import headers
from relay.kafka.partition_reader import OUT_OF_RANGE, PartitionReader, records

SECONDS = 30.0
"""For one request, and without a message before the brokers count as away."""
_DIGITS = 18
"""A number of rows, or an offset, has no more; another program may write anything."""


class DeletedMeanwhile(Unavailable):
    """Retention, or a person, deleted records before they were read: read from the new start."""


class TopicReader:
    """One consumer for one stretch after the other; by default of what the app writes.

    Raises (every method):
        Unavailable: the brokers did not answer.
    """

    def __init__(self, settings: Settings, brokers: Brokers | None = None) -> None:
        self._brokers = brokers or settings.kafka
        self._consumer = PartitionReader(kafka_clients.reader(self._brokers))
        self._of_all = kafka_clients.prober(self._brokers)

    def partitions(self, topic: str) -> list[int]:
        """Return the topic's partitions; none where it is not there, or is not shown."""
        return sorted(self._described(topic).partitions)

    def not_shown(self, topic: str) -> str:
        """Return why the brokers do not tell whether the topic is there; empty: they do."""
        error = self._described(topic).error
        if error is None or error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return ""
        return f"{error.str()} ({error.name()})"

    def _described(self, topic: str) -> TopicMetadata:
        try:
            return self._consumer.list_topics(topic, SECONDS).topics[topic]
        except KafkaException as error:
            raise _unread(topic, -1, error) from error

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """Return (log start, last stable offset); (0, 0) where the topic is not there."""
        try:
            return self._consumer.get_watermark_offsets(TopicPartition(topic, partition), SECONDS)
        except KafkaException as error:
            raise _unread(topic, partition, error) from error

    def end(self, topic: str, partition: int) -> int:
        """Return where the log ends, records of open transactions included."""
        with contextlib.closing(PartitionReader(self._of_all)) as consumer:
            try:
                place = TopicPartition(topic, partition)
                return consumer.get_watermark_offsets(place, SECONDS)[1]
            except KafkaException as error:
                raise _unread(topic, partition, error) from error

    def compacted(self, topic: str) -> bool | None:
        """Return whether compaction deletes messages of the topic; None: no broker says so."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        admin = AdminClient(kafka_clients.admin(self._brokers))
        try:
            config = admin.describe_configs([resource], request_timeout=SECONDS)[resource].result()
        except KafkaException:
            return None  # most often for want of the right to ask
        policy = config.get("cleanup.policy")
        return None if policy is None else "compact" in str(policy.value).split(",")

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Message]:
        """Yield visible messages in [start, end).

        Raises:
            DeletedMeanwhile: the log begins behind the next one now.
        """
        place = TopicPartition(topic, partition, start)
        if start >= end:
            return
        try:
            yield from records(self._consumer, place, end, SECONDS)
        except KafkaException as error:
            if error.args[0].code() in OUT_OF_RANGE:
                begins = self.bounds(topic, partition)[0]
                if begins > start:
                    raise DeletedMeanwhile(
                        f"{topic}[{partition}] begins at offset {begins} now: records were "
                        f"deleted while they were read, from offset {start} on",
                        "run it again",
                    ) from error
            raise _unread(topic, partition, error) from error

    def close(self) -> None:
        """Let go of the consumer."""
        self._consumer.close()


def _unread(topic: str, partition: int, error: KafkaException) -> Unavailable:
    cause = error.args[0]
    return Unavailable(
        f"cannot read {topic}[{partition}]: {cause.str()} ({cause.name()})",
        f"check that the brokers are up and that this user may Read {topic}",
    )


def header(message: Message, name: str) -> bytes | None:
    """Return a header's value, or None."""
    return next((value for key, value in headers(message) if key == name), None)


def rows_of(message: Message) -> int:
    """Return how many rows a record of a block topic says that it has; 0: no number."""
    return _number(message, "rows", 0)


def source_offset_of(message: Message) -> int:
    """Return the source offset that a dead letter names; -1: none, and it is none of the app's."""
    return _number(message, "source_offset", -1)


def _number(message: Message, name: str, otherwise: int) -> int:
    raw = header(message, name) or b""
    return int(raw) if raw.isdigit() and len(raw) <= _DIGITS else otherwise


def table_of(message: Message) -> str:
    """Return the table that a source message names in exactly one header; else ""."""
    tables = [value for key, value in headers(message) if key == names.TABLE_HEADER]
    return _table(tables[0]) if len(tables) == 1 and tables[0] is not None else ""


@lru_cache(10_000)
def _table(raw: bytes) -> str:
    """Remembered: a topic has few tables and many messages."""
    try:
        table = raw.decode()
    except UnicodeDecodeError:
        return ""
    return table if names.is_table_name(table) else ""
