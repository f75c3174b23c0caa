"""Decides when to log that a partition or the group is in trouble: at once, and repeatedly. Pure.

Receives errors that came in the place of messages, gives log lines. The client tries by itself for
ever, and the other partitions go on; nothing was skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import KafkaError

AGAIN_SECONDS = 30.0
"""Between two lines about the same message."""
RECEIVE = "receive.message.max.bytes"
RECEIVE_BYTES = 100_000_000
"""librdkafka's own, where nobody sets it."""

GONE = frozenset(
    {
        KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
        KafkaError.UNKNOWN_TOPIC_ID,
    }
)
"""The offset or the topic is not there any more: nobody may read on as if it were."""

_TOO_LARGE = frozenset({
    KafkaError._BAD_COMPRESSION,  # noqa: SLF001
    KafkaError.MSG_SIZE_TOO_LARGE,
})  # fmt: skip
_DAMAGED = frozenset({KafkaError._BAD_MSG, KafkaError.INVALID_MSG})  # noqa: SLF001


class LoggedError(NamedTuple):
    """What was last logged of a partition; of the group, which has no offset, the offset is 0."""

    offset: int
    code: int
    logged_at: float


_COMPANY = {
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: "another program is in the relays' group: stop it, or "
    "give it a group of its own",
    KafkaError.GROUP_MAX_SIZE_REACHED: "the group has as many members as the brokers allow: stop "
    "programs in it that are no relays, or raise the brokers' group.max.size",
}

OF_GROUP = -1
"""In the place of a partition where the consumer group is in trouble."""


class Troubles:
    """Those of one source topic and its consumer group.

    `receive_bytes`: how large an answer of the brokers, and what it inflates to, may be.
    """

    def __init__(self, topic: str, group: str, bootstrap: str, receive_bytes: int) -> None:
        self._topic, self._group, self._bootstrap = topic, group, bootstrap
        self._receive_bytes = receive_bytes
        self._logged: dict[int, LoggedError] = {}

    def tell(
        self, partition: int, offset: int, error: KafkaError, now: float
    ) -> Mapping[str, object] | None:
        """Return what to log of a partition, or of the group (OF_GROUP), whose offset is 0.

        None if that was logged recently. `now` is in seconds.
        """
        last = self._logged.get(partition)
        same = last is not None and last[:2] == (offset, error.code())
        if last is not None and same and now - last.logged_at < AGAIN_SECONDS:
            return None
        self._logged[partition] = LoggedError(offset, error.code(), now)
        where: dict[str, object] = {"group": self._group}
        next_step = self._next_step_of_group(error.code())
        if partition != OF_GROUP:
            where = {"topic": self._topic, "partition": partition, "offset": offset}
            next_step = self._next_step(error.code())
        return {**where, "why": f"{error.name()} ({error.str()})", "next": next_step}

    def _next_step_of_group(self, code: int) -> str:
        if code not in _COMPANY:
            return "nothing: the relay tries again"
        return (
            f"{_COMPANY[code]}. `kafka-consumer-groups --bootstrap-server {self._bootstrap} "
            f"--group {self._group} --describe --members` shows who is in it"
        )

    def _next_step(self, code: int) -> str:
        if code in _TOO_LARGE:
            return (
                f'a batch of records is damaged, or is larger than "{RECEIVE}" '
                f"({self._receive_bytes}) when decompressed: raise that setting in [kafka.client] "
                "and start again"
            )
        if code in _DAMAGED:
            return "a record is damaged: check the brokers' disks and replicas"
        return "nothing: the relay reads it again"
