"""Finds the offset of the journal to begin at, for readers that do not need all of it.

Each function gives what relay.operate.verify.read.journal.Reader asks for every partition.
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import TopicPartition

from relay.kafka.partition_reader import PartitionReader
from relay.operate.verify.read.journal import Begin

RECORDS = 10_000
"""Offsets of each journal partition that are read first: minutes of the busiest relay."""
_SECONDS = 30.0


def last(offsets: int, needed: Mapping[int, int] | None = None) -> Begin:
    """Begin so many offsets before the end; earlier where somebody needs what is before.

    Args:
        offsets: 0 for all. Transaction markers and aborted records take some of them.
        needed: offset by partition; the log start where a partition is not in it. None: nobody
            needs more.
    """

    def begin(_consumer: PartitionReader, place: TopicPartition, low: int, high: int) -> int:
        tail = high - offsets if offsets else low
        wanted = tail if needed is None else min(tail, needed.get(place.partition, low))
        return min(max(low, wanted), high)

    return begin


def since(when_ms: int) -> Begin:
    """Return the first record that was written then or later.

    Raises (the function given):
        KafkaException: the broker did not answer.
    """

    def begin(consumer: PartitionReader, place: TopicPartition, low: int, high: int) -> int:
        asked = [TopicPartition(place.topic, place.partition, when_ms)]
        found = consumer.offsets_for_times(asked, _SECONDS)[0].offset
        return max(low, found) if 0 <= found < high else high

    return begin


def only(partition: int, offset: int = 0) -> Begin:
    """Return one partition from there on, nothing of the others."""

    def begin(_consumer: PartitionReader, place: TopicPartition, low: int, high: int) -> int:
        return min(max(low, offset), high) if place.partition == partition else high

    return begin
