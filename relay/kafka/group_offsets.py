"""Read and write the floors that the relay's consumer group holds.

`places` makes what send_offsets_to_transaction commits: each floor with the metadata that names its
journal record, and with the leader epoch under which the log reached it. Where the source is in a
cluster of its own, the truth is in the other one: `show` tells the source's group, for lag tools
alone, without waiting for an answer. `read` returns what that group shows.
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

    from relay.core.offsets import Epochs, Offsets


def places(topic: str, offsets: Offsets, epochs: Epochs) -> list[TopicPartition]:
    """Return the offsets of these partitions, for send_offsets_to_transaction."""
    return [
        TopicPartition(topic, p, at.floor, at.metadata, epochs.get(p, UNKNOWN_EPOCH))
        for p, at in offsets.items()
    ]


log = logging.getLogger(__name__)


def show(consumer: Consumer, places: list[TopicPartition]) -> None:
    """Show them to the group, without waiting for its answer."""
    try:
        consumer.commit(offsets=places, asynchronous=True)
    except KafkaException as error:  # the next commit shows more
        log.debug(
            "the relay could not commit its floors to the group in the source's cluster",
            extra={"why": error.args[0].name()},
        )


def read(
    consumer: Consumer, topic: str, partitions: Collection[int], seconds: float
) -> Mapping[int, JournalEnd]:
    """Return what the group shows of each partition, with the journal's end still to be asked for.

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
        raise answered(f"read the group's offsets of {topic}", error.args[0], grant) from error
    for entry in entries:
        if entry.error is not None:
            raise Unavailable(
                f"the group's offset of {topic}[{entry.partition}]: {entry.error}",
                "check the source's group coordinators",
            )
        shown = CommittedOffset.parse(entry.offset, entry.metadata)
        epoch = UNKNOWN_EPOCH if entry.leader_epoch is None else entry.leader_epoch
        found[entry.partition] = JournalEnd(-1, shown, epoch)
    return found
