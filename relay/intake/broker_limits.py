"""Explains refusals that name only the brokers' limit, with both numbers.

Asks every broker for its limits. If the user lacks DescribeConfigs on the cluster, the error names
that right.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented, not in __all__
    AdminClient,
    ConfigResource,
    ResourceType,
)

from relay.config import kafka_clients
from relay.errors import Refused

if TYPE_CHECKING:
    from relay.config.settings import Brokers, Settings

UNTOLD = "to be told the limit, this user needs DescribeConfigs on the cluster"
_LEAST, _MOST = "group.min.session.timeout.ms", "group.max.session.timeout.ms"
_REQUEST_SECONDS = 10.0


def read_limits(kafka: Brokers, *names: str) -> dict[str, list[int]]:
    """Return what each broker has for these limits; nothing where they do not say.

    Args:
        kafka: how to reach the brokers.
        names: of brokers' settings whose values are numbers.
    """
    admin = AdminClient(kafka_clients.admin(kafka))
    found: dict[str, list[int]] = defaultdict(list)
    try:
        brokers = admin.list_topics(timeout=_REQUEST_SECONDS).brokers
        for one in [ConfigResource(ResourceType.BROKER, str(broker)) for broker in brokers]:
            answer = admin.describe_configs([one], request_timeout=_REQUEST_SECONDS)[one].result()
            for name in answer.keys() & set(names):
                found[name].append(int(answer[name].value))
    except KafkaException:
        return {}  # the refusal itself is what matters; `relay doctor` says why
    return found


def session_refused(text: str, settings: Settings) -> Refused:
    """Return the error of a group that takes no session of this length.

    Args:
        text: what was refused.
        settings: of the app.
    """
    asked_ms = round(settings.relay.session_timeout_seconds * 1000)
    limits = read_limits(settings.source_kafka, _LEAST, _MOST)
    if limits.keys() >= {_LEAST, _MOST}:
        least_ms, most_ms = max(limits[_LEAST]), min(limits[_MOST])
        limit = f"{_LEAST} = {least_ms}, {_MOST} = {most_ms}"
        nearest_ms = min(max(asked_ms, least_ms), most_ms)
        remedy = f"set relay.session_timeout_seconds = {nearest_ms / 1000:g}"
    else:
        limit, remedy = UNTOLD, "change relay.session_timeout_seconds"
    return Refused(
        f"{text}: relay.session_timeout_seconds is {asked_ms} ms ({limit})",
        f"{remedy}, or change the brokers' limit, then start again",
        code=KafkaError.INVALID_SESSION_TIMEOUT,
    )
