"""Asks leaders where a topic's partitions begin and end for read_committed readers.

Receives partitions, gives offsets; or those of them that take no records, which any client can be
asked for. Asked for offsets is an admin client: a member's consumer cannot be asked in
an assignment. It is in a callback of its own, where nothing can refresh what it knows, and a
partition that had no leader for a moment stays unknown to it until it asks by the clock, minutes
later (librdkafka 2.16).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented, not in __all__  # type: ignore[attr-defined]
    AdminClient,
    ListOffsetsResultInfo,
    OffsetSpec,
    PartitionMetadata,
)

Place = tuple[str, int]
"""A topic and one of its partitions."""
LeastInSync = Callable[[Mapping[str, int]], Mapping[str, int]]
"""Receives topics and how many copies they have; gives min.insync.replicas of those known."""
_SINGLY = 20
"""Topics that are asked about one by one; of more, one request about all of a cluster is less."""


def listed_places(places: Collection[Place]) -> str:
    """Return partitions as people know them."""
    return ", ".join(f"{topic}[{partition}]" for topic, partition in sorted(places))


def dark_text(places: Collection[Place]) -> str:
    """Return what is wrong with partitions that take no records."""
    return f"no broker takes records for {listed_places(places)}"


def dark_places(
    client: AdminClient | Producer,
    places: Collection[Place],
    deadline_seconds: float,
    least_in_sync: LeastInSync,
) -> frozenset[Place]:
    """Return those of these partitions that take no records while brokers are away.

    Nobody leads them, as no broker that is there may; or their leader takes no record, and no
    marker of a transaction's end, since too few others have what it has.

    All of them have to exist; `least_in_sync` is asked only where copies are missing.

    Raises:
        KafkaException: no broker answered.
    """
    topics = {topic for topic, _ in places}
    dark: set[Place] = set()
    lacking: dict[Place, PartitionMetadata] = {}
    for asked_topic in [""] if len(topics) > _SINGLY else sorted(topics):
        cluster = client.list_topics(asked_topic or None, timeout=deadline_seconds).topics
        for topic in topics & cluster.keys():
            partitions = cluster[topic].partitions.items()
            dark |= {(topic, index) for index, led in partitions if led.leader < 0}
            lacking |= {(topic, i): p for i, p in partitions if len(p.isrs) < len(p.replicas)}
    lacking = {place: lacking[place] for place in lacking.keys() & {*places} - dark}
    if lacking:
        least = least_in_sync({topic: len(p.replicas) for (topic, _), p in lacking.items()})
        dark |= {
            place
            for place, partition in lacking.items()
            # Of a topic with fewer copies than that, brokers want all.
            if len(partition.isrs) < min(least.get(place[0], 0), len(partition.replicas))
        }
    return frozenset(dark.intersection(places))


def listed_offset(place: TopicPartition, listed: ListOffsetsResultInfo) -> int:
    """Return the offset that its leader gave for a partition, of AdminClient.list_offsets.

    Where a leader's connection broke before its answer, librdkafka (2.16) leaves the offsets of
    its partitions at OFFSET_INVALID and reports no error. Taken at its word, a log ended before
    its beginning.

    Raises:
        KafkaException: _TRANSPORT where no leader answered.
    """
    if listed.offset < 0:
        silent = f"the leader of {place.topic}[{place.partition}] did not answer"
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, silent))  # noqa: SLF001
    return int(listed.offset)


class TopicEnds:
    """The ends of one topic's partitions.

    Raises (every method):
        KafkaException: as the brokers answer, or none does within the deadline.
    """

    def __init__(self, admin: AdminClient, topic: str, deadline_seconds: float) -> None:
        self._admin = admin
        self._topic = topic
        self._deadline_seconds = deadline_seconds

    def bounds(self, partitions: Collection[int]) -> dict[int, tuple[int, int]]:
        """Return first offsets and last stable ones."""
        self._find_leaders()
        low = self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        high = self._offsets(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return {p: (low[p], high[p]) for p in partitions}

    def stable(self, partitions: Collection[int]) -> dict[int, int]:
        """Return last stable offsets."""
        self._find_leaders()
        return self._offsets(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def _find_leaders(self) -> None:
        # librdkafka's AdminClient (2.16) keeps those of before an outage, and the brokers answer
        # FENCED_LEADER_EPOCH to it for ever.
        self._admin.list_topics(self._topic, timeout=self._deadline_seconds)

    def _offsets(self, partitions: Collection[int], which: OffsetSpec) -> dict[int, int]:
        futures = self._admin.list_offsets(
            {TopicPartition(self._topic, p): which for p in partitions},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=self._deadline_seconds,
        )
        return {
            place.partition: listed_offset(place, asked.result())
            for place, asked in futures.items()
        }
