"""Floors as the consumer group holds them.

Receives what the core commits, gives the client's places: each floor with the metadata that names
its journal record, and with the leader epoch under which the log reached it, where that is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition

from relay.core.offsets import UNKNOWN_EPOCH

if TYPE_CHECKING:
    from relay.core.offsets import Epochs, Offsets


def places(topic: str, offsets: Offsets, epochs: Epochs) -> list[TopicPartition]:
    """Of these source partitions, for send_offsets_to_transaction."""
    return [
        TopicPartition(topic, p, at.floor, at.metadata, epochs.get(p, UNKNOWN_EPOCH))
        for p, at in offsets.items()
    ]
