"""What a member of the group fetches: which of its assigned partitions, and from where.

Receives what the core wants polled, seeks, pauses and resumes; gives where partitions end, as far
as the client knows.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from relay.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from confluent_kafka import Consumer

    from relay.intake.leader_epochs import LeaderEpochs

SEEK_SECONDS = 10.0


class Fetching:
    """Of one consumer.

    Args:
        consumer: of `topic` alone.
        epochs: that stand with committed floors.
    """

    def __init__(self, consumer: Consumer, topic: str, epochs: LeaderEpochs) -> None:
        self._consumer, self._topic, self._epochs = consumer, topic, epochs
        self._assigned: frozenset[int] = frozenset()
        self._paused: frozenset[int] = frozenset()

    def assigned(self, partitions: Collection[int]) -> None:
        """Prepare to fetch all of these, just before the consumer is assigned them.

        librdkafka (2.16) keeps an application's pause when a partition is taken away, and where
        it comes back so nobody would ever hear of it again.
        """
        self._resume(self._paused)
        self._paused, self._assigned = frozenset(), frozenset(partitions)

    def only(self, partitions: frozenset[int] | None) -> None:
        """Poll just these of the assigned partitions from now on; None: all of them.

        What was fetched of the others and not polled yet is fetched again in their turn.
        """
        paused = frozenset() if partitions is None else self._assigned - partitions
        self._resume(self._paused - paused)
        if begins := paused - self._paused:
            self._consumer.pause([TopicPartition(self._topic, index) for index in begins])
        self._paused = paused

    def _resume(self, partitions: frozenset[int]) -> None:
        if partitions:
            self._consumer.resume([TopicPartition(self._topic, index) for index in partitions])

    def ends(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return where these ended when they were last fetched; asks no broker.

        Without those never fetched. An end counts transaction markers and open transactions too.
        """
        known = {}
        for index in partitions:
            place = TopicPartition(self._topic, index)
            _, known[index] = self._consumer.get_watermark_offsets(place, cached=True)
        return {index: end for index, end in known.items() if end >= 0}

    def seek(self, partition: int, offset: int) -> None:
        """Poll this partition from `offset` on; fetched messages are thrown away.

        Raises:
            Unavailable: its fetcher did not start within SEEK_SECONDS.
        """
        deadline = time.monotonic() + SEEK_SECONDS
        while True:
            try:
                self._consumer.seek(self.place(partition, offset))
            except KafkaException as error:
                # Right after an assignment the fetcher may not have started, and nothing tells
                # when it has: ask again, until SEEK_SECONDS are over.
                if error.args[0].code() != KafkaError._STATE or time.monotonic() > deadline:  # noqa: SLF001
                    raise Unavailable(
                        f"seek {self._topic}[{partition}] to {offset}: {error.args[0]}",
                        "check the brokers that lead the source topic's partitions",
                    ) from error
                time.sleep(0.02)
            else:
                return

    def place(self, partition: int, offset: int) -> TopicPartition:
        """Return where to fetch from, with the leader epoch that was committed there."""
        epoch = self._epochs.at(partition, offset)
        return TopicPartition(self._topic, partition, offset, leader_epoch=epoch)
