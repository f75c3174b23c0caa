"""Judges what this user may do, in Kafka and in ClickHouse; pure.

Receives the app's settings and what the servers say that the user may; gives a finding
for each right that relay and loader need and the user lacks, with the command that
grants it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from relay import names
from relay.operate.doctor.findings import found
from relay.operate.doctor.fixes import grant, quoted
from relay.operate.doctor.judge.brokers import DENIED

if TYPE_CHECKING:
    from relay.config.settings import Settings
    from relay.operate.doctor.facts import ClickHouseFacts, KafkaFacts
    from relay.operate.doctor.findings import Finding


def needed(settings: Settings, topic: str) -> dict[str, str]:
    """Return operations that are needed on a topic, and by whom."""
    app = settings.app
    if topic == settings.source.topic:
        return {"READ": "relay"}
    if topic == names.dead_topic(app):
        return {"WRITE": "relay"}
    if topic == names.schemas_topic(app):
        return {"READ": "relay", "WRITE": "relay"}
    if topic == names.journal_topic(app):
        return {"READ": "relay and loader", "WRITE": "relay"}
    if topic.startswith(names.blocks_prefix(app)):
        return {"READ": "loader", "WRITE": "relay"}
    return {}


def judge_kafka(settings: Settings, facts: KafkaFacts) -> Iterator[Finding]:
    """Yield every finding about rights in Kafka."""
    kafka, app = settings.kafka, settings.app
    for name, topic in facts.topics.items():
        for operation, who in needed(settings, name).items():
            if topic.granted is not None and operation not in topic.granted:
                yield found(
                    "right-topic",
                    f"topic {name}: this user may not {operation.capitalize()}, which {who} must",
                    _on_topic(settings, name, operation.capitalize()),
                )
    group = names.group_id(app)
    if facts.group_granted is not None and "READ" not in facts.group_granted:
        yield found(
            "right-group",
            f"group {group}: this user may not Read",
            grant(settings.source_kafka, "Read", "group", group),
        )
    if facts.transactions is not None and facts.transactions.code.endswith(DENIED):
        prefix = names.transactional_ids(app, by_partition=settings.crosses)
        yield found(
            "right-transactional-id",
            f"transactional ids that begin with {prefix}: {facts.transactions.code}",
            grant(kafka, "Write", "transactional-id", prefix, prefixed=True),
        )
    if facts.creation is not None and facts.creation.code.endswith(DENIED):
        yield found(
            "right-create",
            f"topics that begin with {app}.: {facts.creation.code}",
            grant(kafka, "Create", "topic", f"{app}.", prefixed=True),
        )


def _on_topic(settings: Settings, topic: str, operation: str) -> str:
    if topic == settings.source.topic:
        return grant(settings.source_kafka, operation, "topic", topic)
    return grant(settings.kafka, operation, "topic", f"{settings.app}.", prefixed=True)


def judge_clickhouse(facts: ClickHouseFacts) -> Iterator[Finding]:
    """Yield every finding about rights in ClickHouse."""
    on_tables = [
        (right, quoted(name))
        for name, table in facts.tables.items()
        if table is not None
        for right in table.missing
    ]
    for right, place in (*on_tables, *facts.missing):
        yield found(
            "right-table",
            f"user {facts.user} has no {right} on {place}",
            f"GRANT {right} ON {place} TO {facts.user}",
        )
