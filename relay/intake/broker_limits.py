"""Explains the refusal of a session that the brokers do not allow, with both numbers.

Asks every broker for its limits. If the user lacks DescribeConfigs on the cluster, the error names
that right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaError

from relay.errors import Refused
from relay.kafka.errors import UNTOLD, read_limits

if TYPE_CHECKING:
    from relay.config.settings import Settings

_LEAST, _MOST = "group.min.session.timeout.ms", "group.max.session.timeout.ms"


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
