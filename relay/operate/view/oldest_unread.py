"""Finds when the oldest message of a stretch that no relay has polled was written.

What is known of a stretch is not asked again; what does not come in time, or may not be read, is
not known.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import (
    OFFSET_INVALID,
    TIMESTAMP_NOT_AVAILABLE,
    KafkaException,
    Message,
    TopicPartition,
)

from relay.config import kafka_clients
from relay.config.settings import Settings
from relay.kafka.partition_reader import PartitionReader

Stretch = tuple[int, int]
"""Offsets: from here, up to before there."""

NOTHING_MS = 0
"""Of a stretch that holds no message, only markers of transactions."""
SECONDS = 3.0
"""For all partitions together."""
POLL_SECONDS = 0.1
_ONE_AT_A_TIME = {"queued.min.messages": 1, "queued.max.messages.kbytes": 1_024}


class OldestUnread:
    """One consumer, made when something first lags.

    If `uncommitted`, messages of transactions that are open or were aborted count, too.
    """

    def __init__(self, settings: Settings, *, uncommitted: bool = False) -> None:
        self._settings = settings
        self._isolation = {"isolation.level": "read_uncommitted"} if uncommitted else {}
        self._consumer: PartitionReader | None = None
        self._known: dict[int, tuple[Stretch, int | None]] = {}

    def written_ms(self, stretches: Mapping[int, Stretch]) -> dict[int, int]:
        """Return when the first message of each (not empty) stretch was written, if it is known."""
        self._known = {p: was for p, was in self._known.items() if _holds(was, stretches.get(p))}
        new = {p: stretch for p, stretch in stretches.items() if p not in self._known}
        if new:
            try:
                self._ask(new)
            except KafkaException:  # not known, then
                self.close()
        return {p: ms for p, (_, ms) in self._known.items() if ms is not None}

    def _ask(self, stretches: Mapping[int, Stretch]) -> None:
        if self._consumer is None:
            brokers = kafka_clients.reader(self._settings.source_kafka)
            self._consumer = PartitionReader({**brokers, **_ONE_AT_A_TIME, **self._isolation})
        consumer, left, deadline = self._consumer, dict(stretches), time.monotonic() + SECONDS
        consumer.assign([self._place(p, start) for p, (start, _) in left.items()])
        while left and time.monotonic() < deadline:
            message = consumer.poll(POLL_SECONDS)
            if message is None:
                self._note_passed(consumer, left)
            elif (partition := message.partition()) is not None and partition in left:
                self._known[partition] = left.pop(partition), _written_ms(message)
                consumer.pause([self._place(partition)])
        consumer.unassign()

    def _note_passed(self, consumer: PartitionReader, left: dict[int, Stretch]) -> None:
        """The client's own position also passes markers and aborted records."""
        for place in consumer.position([self._place(p) for p in left]):
            if place.offset >= left[place.partition][1]:
                self._known[place.partition] = left.pop(place.partition), NOTHING_MS

    def _place(self, partition: int, offset: int = OFFSET_INVALID) -> TopicPartition:
        return TopicPartition(self._settings.source.topic, partition, offset)

    def close(self) -> None:
        """Let go of the consumer."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


def _holds(known: tuple[Stretch, int | None], now: Stretch | None) -> bool:
    """Whether what is known of a stretch is true of that of now, which may have grown."""
    stretch, ms = known
    if now is None or now[0] != stretch[0]:
        return False
    return now == stretch or ms != NOTHING_MS


def _written_ms(message: Message) -> int | None:
    """None also in the place of an error, as where the topic may not be read."""
    if message.error() is not None:
        return None
    kind, ms = message.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE or ms <= 0 else ms
