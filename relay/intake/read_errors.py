"""Decides when to log that a source partition cannot be read: at once, and repeatedly. Pure.

Receives errors that came in the place of messages, gives what to say of them and when. The client
tries by itself for ever, and the other partitions go on; nothing was skipped.
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


class StuckMessage(NamedTuple):
    """Of one message that does not come."""

    offset: int
    code: int
    told_at: float


class Troubles:
    """Those of one source topic.

    Args:
        receive_bytes: how large an answer, and what it inflates to, may be.
    """

    def __init__(self, topic: str, receive_bytes: int) -> None:
        self._topic, self._receive_bytes = topic, receive_bytes
        self._told: dict[int, StuckMessage] = {}

    def tell(
        self, partition: int, offset: int, error: KafkaError, now: float
    ) -> Mapping[str, object] | None:
        """Return what to log now; None if it was logged recently. `now` is in seconds."""
        before = self._told.get(partition)
        same = before is not None and before[:2] == (offset, error.code())
        if before is not None and same and now - before.told_at < AGAIN_SECONDS:
            return None
        self._told[partition] = StuckMessage(offset, error.code(), now)
        return {
            "topic": self._topic,
            "partition": partition,
            "offset": offset,
            "why": f"{error.name()} ({error.str()})",
            "next": self._next_step(error.code()),
        }

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
