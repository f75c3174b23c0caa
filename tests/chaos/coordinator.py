"""Which broker coordinates a relay's transactions: the leader of the partition of
`__transaction_state` that its transactional id falls into."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from relay import names
from tests.broker.pipeline import wait_until

if TYPE_CHECKING:
    from tests.chaos.servers import Servers

_TOPIC = "__transaction_state"
_SECONDS = 120.0


def java_hash(text: str) -> int:
    """String.hashCode of Java: 32 bits with sign."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_of(transactional_id: str, partitions: int) -> int:
    """As Kafka's `Utils.abs(hashCode) % partitions`."""
    return (
        java_hash(transactional_id) & 0x7FFFFFFF
        if java_hash(transactional_id) == -(1 << 31)
        else abs(java_hash(transactional_id))
    ) % partitions


def of(servers: Servers, member: str) -> int:
    """The broker's index, which is its node id; other faults may hold brokers up just now."""
    admin = AdminClient({"bootstrap.servers": servers.bootstrap})
    found: list[Any] = []

    def answered() -> bool:
        with contextlib.suppress(KafkaException):
            found.append(admin.list_topics(timeout=10).topics[_TOPIC].partitions)
        return bool(found)

    wait_until(answered, f"the partitions of {_TOPIC}", _SECONDS)
    (partitions,) = found
    index = partition_of(names.transactional_id(servers.app, member), len(partitions))
    return int(partitions[index].leader)
