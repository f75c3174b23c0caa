"""A consumer of partitions that it assigns itself: a member of no group.

Receives the settings of relay.kafka_settings.reader, gives the same as a Consumer but for one
error. The client library demands a group id and looks for that group's coordinator, whether
it is needed or not. A user without rights on the group is told so at a random moment, in the
midst of the records that it may well read; for a reader that says nothing.
"""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, Message


def _concerns(message: Message) -> bool:
    error = message.error()
    return error is None or error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED


class PartitionReader(Consumer):
    """Reads topics with no more right than Read on them."""

    def poll(self, timeout: float = -1) -> Message | None:
        """As Consumer.poll."""
        message = super().poll(timeout)
        return message if message is None or _concerns(message) else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """As Consumer.consume."""
        return [message for message in super().consume(num_messages, timeout) if _concerns(message)]
