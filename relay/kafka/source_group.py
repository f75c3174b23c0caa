"""Floors shown in the group of the source's cluster, where the truth is in another: for lag tools.

Receives the member's own consumer, gives what the group shows, or tells it. Whoever lost the
partition is refused by its generation; nobody waits for the answer, and nobody needs it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, TopicPartition

from relay.core.offsets import UNKNOWN_EPOCH, CommittedOffset
from relay.core.records import JournalEnd
from relay.errors import Unavailable
from relay.kafka.errors import answered

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

log = logging.getLogger(__name__)


def show(consumer: Consumer, places: list[TopicPartition]) -> None:
    """To the group, without waiting for its answer."""
    try:
        consumer.commit(offsets=places, asynchronous=True)
    except KafkaException as error:  # the next commit shows more
        log.debug("floors are not shown", extra={"why": error.args[0].name()})


def read(
    consumer: Consumer, topic: str, partitions: Collection[int], seconds: float
) -> Mapping[int, JournalEnd]:
    """What the group shows of each partition, with the journal's end still to be asked for.

    What a tool wrote there is nothing: the next commit replaces it.

    Raises:
        Unavailable, Refused: as the brokers answer.
    """
    asked = [TopicPartition(topic, p) for p in sorted(partitions)]
    found = {}
    try:
        entries = consumer.committed(asked, timeout=seconds)
    except KafkaException as error:
        grant = "grant Read on the relay's group to the user of source.kafka.client"
        raise answered(f"read what the group shows of {topic}", error.args[0], grant) from error
    for entry in entries:
        if entry.error is not None:
            raise Unavailable(
                f"what the group shows of {topic}[{entry.partition}]: {entry.error}",
                "check the source's group coordinators",
            )
        shown = CommittedOffset.parse(entry.offset, entry.metadata)
        epoch = UNKNOWN_EPOCH if entry.leader_epoch is None else entry.leader_epoch
        found[entry.partition] = JournalEnd(-1, shown, epoch)
    return found
