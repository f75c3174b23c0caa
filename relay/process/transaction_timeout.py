"""Explains a start that the brokers refused for its transaction timeout, with both numbers.

Receives the refusal, which has only the name of the brokers' limit, and asks them for it. If the
user lacks DescribeConfigs on the cluster, the error names that right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented, not in __all__
    AdminClient,
    ConfigResource,
    ResourceType,
)

from relay.config import kafka_clients
from relay.errors import Refused

if TYPE_CHECKING:
    from relay.config.settings import Kafka, Settings

ERROR = "INVALID_TRANSACTION_TIMEOUT"
"""As relay.kafka.errors names it in a message."""
LIMIT = "transaction.max.timeout.ms"
_REQUEST_SECONDS = 10.0


def with_both_numbers(error: Refused, settings: Settings) -> Refused:
    """Return the same error; if it is about the transaction's timeout, in numbers."""
    if ERROR not in error.message:
        return error
    asked_ms = round(settings.relay.transaction_timeout_seconds * 1000)
    allowed_ms = allowed(settings.kafka)
    if allowed_ms is None:
        limit = "to be told the limit, this user needs DescribeConfigs on the cluster"
        remedy = "lower relay.transaction_timeout_seconds"
    else:
        limit = f"{LIMIT} = {allowed_ms}"
        remedy = f"set relay.transaction_timeout_seconds = {allowed_ms / 1000:g}"
    return Refused(
        f"{error.message}: relay.transaction_timeout_seconds is {asked_ms} ms, and the brokers "
        f"allow less ({limit})",
        f"{remedy}, or raise {LIMIT} of the brokers, then start again",
    )


def allowed(kafka: Kafka) -> int | None:
    """Return the least of the brokers' limits, in milliseconds; None where they do not say."""
    admin = AdminClient(kafka_clients.admin(kafka))
    try:
        brokers = admin.list_topics(timeout=_REQUEST_SECONDS).brokers
        asked = [ConfigResource(ResourceType.BROKER, str(broker)) for broker in brokers]
        told = [
            admin.describe_configs([one], request_timeout=_REQUEST_SECONDS)[one].result()
            for one in asked
        ]
    except KafkaException:
        return None  # the refusal itself is what matters; `relay doctor` says why
    return min((int(entries[LIMIT].value) for entries in told if LIMIT in entries), default=None)
