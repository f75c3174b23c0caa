"""What a member of the group fetches: which of its assigned partitions, and from where.

Receives what the core wants polled, seeks, pauses and resumes; gives where partitions end, as far
as the client knows, and the leader epochs that go with floors: they show that a log has lost its
end.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from relay.core.offsets import UNKNOWN_EPOCH, Epochs
from relay.core.records import PartitionTruth
from relay.errors import Unavailable

SEEK_SECONDS = 10.0


class Fetching:
    """What one consumer, which has `topic` alone, fetches."""

    def __init__(self, consumer: Consumer, topic: str, epochs: LeaderEpochs) -> None:
        self._consumer, self._topic, self._epochs = consumer, topic, epochs
        self._assigned: frozenset[int] = frozenset()
        self._paused: frozenset[int] = frozenset()

    def assigned(self, partitions: Collection[int]) -> None:
        """Prepare to fetch all of these, just before the consumer is assigned them.

        librdkafka (2.16) keeps an application's pause when a partition is revoked: assigned again,
        it would stay paused for ever.
        """
        self._resume(self._paused)
        self._paused, self._assigned = frozenset(), frozenset(partitions)

    def only(self, partitions: frozenset[int] | None) -> None:
        """Poll just these of the assigned partitions from now on; None: all of them.

        What was fetched of the others and not polled yet will be fetched again.
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
        ends = {}
        for index in partitions:
            partition = TopicPartition(self._topic, index)
            _, ends[index] = self._consumer.get_watermark_offsets(partition, cached=True)
        return {index: end for index, end in ends.items() if end >= 0}

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


class LeaderEpochs:
    """Remember the leader epochs of committed floors, of the partitions that a member owns.

    Whoever begins at a floor with its epoch learns from the leader whether that epoch still reaches
    the floor: an unclean election may have replaced what was read (KIP-320).
    """

    def __init__(self) -> None:
        self._of_floors: dict[tuple[int, int], int] = {}

    def remember(self, truths: Iterable[PartitionTruth]) -> None:
        """Remember the leader epochs that were committed with floors, for whoever begins there."""
        read = {truth.partition: truth for truth in truths}
        others = {key: epoch for key, epoch in self._of_floors.items() if key[0] not in read}
        self._of_floors = others | {
            (index, truth.committed.floor): truth.leader_epoch
            for index, truth in read.items()
            if truth.committed is not None
        }

    def at(self, partition: int, floor: int) -> int:
        """Return the one that stands with just this floor, or UNKNOWN_EPOCH."""
        return self._of_floors.get((partition, floor), UNKNOWN_EPOCH)

    def to_commit(self, floors: Mapping[int, int], polled: Mapping[int, int | None]) -> Epochs:
        """Return them by partition, for these floors.

        Args:
            floors: by partition.
            polled: the epochs under which the last polled messages were written. A message behind
                the floor has an epoch that reaches the floor as well; an older one would not, so
                where the client does not know (right after a seek), there is none.
        """
        epochs = {}
        for partition, floor in floors.items():
            epoch = polled[partition]
            epochs[partition] = self.at(partition, floor) if epoch is None else epoch
        return epochs
