"""Read and write the floors that the relay's consumer group holds.

`places` makes what send_offsets_to_transaction commits: each floor with the metadata that names its
journal record, and with the leader epoch under which the log reached it. Where the source is in a
cluster of its own, the truth is in the other one: `show` tells the source's group, for lag tools
alone, without waiting for an answer. `read` returns what that group shows. `lost_ends` asks whether
logs still reach what was read under a committed leader epoch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from relay.config import kafka_clients
from relay.config.settings import Brokers
from relay.core.offsets import UNKNOWN_EPOCH, CommittedOffset, Epochs, Offsets
from relay.core.records import JournalEnd
from relay.errors import Unavailable
from relay.kafka.errors import REFUSED, answering, lost_end
from relay.kafka.partition_reader import PartitionReader

log = logging.getLogger(__name__)


def places(topic: str, offsets: Offsets, epochs: Epochs) -> list[TopicPartition]:
    """Return the offsets of these partitions, for send_offsets_to_transaction."""
    return [
        TopicPartition(topic, p, offset.floor, offset.metadata, epochs.get(p, UNKNOWN_EPOCH))
        for p, offset in offsets.items()
    ]


_POLL_SECONDS = 0.05
_ANSWERS = {KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET}  # noqa: SLF001
"""Errors that stand for a leader's answer about an offset."""


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
    ends = {}
    grant = "grant Read on the relay's group to the user of source.kafka.client"
    with answering(f"read the group's offsets of {topic}", grant):
        entries = consumer.committed(asked, timeout=seconds)
    for entry in entries:
        if entry.error is not None:
            raise Unavailable(
                f"the group's offset of {topic}[{entry.partition}]: {entry.error}",
                "check the source's group coordinators",
            )
        shown = CommittedOffset.parse(entry.offset, entry.metadata)
        ends[entry.partition] = JournalEnd(-1, shown, known_epoch(entry))
    return ends


def known_epoch(committed: TopicPartition) -> int:
    """Return the leader epoch that was committed with an offset; UNKNOWN_EPOCH if none was."""
    return UNKNOWN_EPOCH if committed.leader_epoch is None else committed.leader_epoch


def lost_ends(
    brokers: Brokers, places: Collection[TopicPartition], seconds: float
) -> dict[int, int]:
    """Return where logs end for a leader epoch, of those that do not reach the offset under it.

    What lies there and behind it was written under later leaders, in place of what was lost: by an
    unclean election, or by the only copy of a log.

    `places`: of one topic: partition, offset and leader epoch; none asks nobody.

    Raises:
        Unavailable: leaders did not answer.
        KafkaException: they refused.
    """
    if not places:
        return {}
    reader = PartitionReader(kafka_clients.prober(brokers))
    try:
        return _lost_ends(reader, {place.partition: place for place in places}, seconds)
    finally:
        reader.close()


def _lost_ends(
    reader: PartitionReader, unconfirmed: dict[int, TopicPartition], seconds: float
) -> dict[int, int]:
    """Wait for each: a message, or the partition's end, comes once its leader has confirmed.

    Where retention has deleted the offset since, an error comes that says nothing of the epoch.
    """
    ends: dict[int, int] = {}
    deadline = time.monotonic() + seconds
    reader.incremental_assign([*unconfirmed.values()])
    while unconfirmed:
        message = reader.poll(_POLL_SECONDS)
        if message is None:
            if time.monotonic() > deadline:
                topic = next(iter(unconfirmed.values())).topic
                raise Unavailable(
                    f"{topic}{sorted(unconfirmed)}: the brokers did not say within {seconds:g} s "
                    "whether the log still reaches what was read of it",
                    "check the brokers that lead the topic",
                )
            continue
        error = message.error()
        if error is not None and error.code() in REFUSED:
            raise KafkaException(error)
        if error is not None and error.code() not in _ANSWERS:
            continue
        place = unconfirmed.pop(message.partition() or 0, None)
        if place is not None:
            reader.incremental_unassign([place])
            end = None if error is None else lost_end(error)
            ends |= {} if end is None else {place.partition: end}
    return ends
