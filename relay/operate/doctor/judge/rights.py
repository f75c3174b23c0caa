"""Judges the rights that this user's roles need and it lacks, in Kafka and in ClickHouse; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from relay import names
from relay.clickhouse.quoting import readable, readable_user
from relay.config.settings import Settings
from relay.operate.doctor.facts import ClickHouseFacts, KafkaFacts
from relay.operate.doctor.findings import Finding, report
from relay.operate.doctor.fixes import grant
from relay.operate.doctor.judge.brokers import DENIED

ROLES = ("relay", "loader", "verifier")
"""Those that can be judged alone."""
DATA_PATH = ("relay", "loader")
"""Judged where no role is named: one user may have both."""


def needed(settings: Settings, topic: str) -> dict[str, tuple[str, ...]]:
    """Return operations that are needed on a topic, and the roles that need them."""
    app = settings.app
    if topic == settings.source.topic:
        return {"READ": ("relay", "verifier")}
    readers = {
        names.dead_topic(app): ("verifier",),
        names.schemas_topic(app): ("relay", "verifier"),
        names.journal_topic(app): ("relay", "loader", "verifier"),
    }
    if topic.startswith(names.blocks_prefix(app)):
        readers[topic] = ("loader", "verifier")
    return {"READ": readers[topic], "WRITE": ("relay",)} if topic in readers else {}


def judge_kafka(
    settings: Settings, facts: KafkaFacts, roles: Collection[str] = DATA_PATH
) -> Iterator[Finding]:
    """Yield every finding about rights in Kafka that these roles need."""
    for name, topic in facts.topics.items():
        for operation, needing in needed(settings, name).items():
            who = [role for role in needing if role in roles]
            if who and topic.granted is not None and operation not in topic.granted:
                yield report(
                    "right-topic",
                    f"topic {name}: this user may not {operation.capitalize()}, and "
                    f"{' and '.join(who)} must",
                    _on_topic(settings, name, operation.capitalize()),
                )
    yield from _group(settings, facts, roles)
    if "relay" in roles:
        yield from _writes(settings, facts)


def _group(settings: Settings, facts: KafkaFacts, roles: Collection[str]) -> Iterator[Finding]:
    group = names.group_id(settings.app)
    operation = "Read" if "relay" in roles else "Describe" if "verifier" in roles else None
    if operation is None or facts.group_granted is None:
        return
    if operation.upper() not in facts.group_granted:
        yield report(
            "right-group",
            f"group {group}: this user may not {operation}",
            grant(settings.source_kafka, operation, "group", group),
        )


def _writes(settings: Settings, facts: KafkaFacts) -> Iterator[Finding]:
    kafka, app = settings.kafka, settings.app
    if facts.transactions is not None and facts.transactions.code.endswith(DENIED):
        prefix = names.transactional_ids(app, by_partition=settings.crosses)
        yield report(
            "right-transactional-id",
            f"transactional ids that begin with {prefix}: {facts.transactions.code}",
            grant(kafka, "Write", "transactional-id", prefix, prefixed=True),
        )
    if facts.creation is not None and facts.creation.code.endswith(DENIED):
        yield report(
            "right-create",
            f"topics that begin with {app}.: {facts.creation.code}",
            grant(kafka, "Create", "topic", f"{app}.", prefixed=True),
        )


def _on_topic(settings: Settings, topic: str, operation: str) -> str:
    if topic == settings.source.topic:
        return grant(settings.source_kafka, operation, "topic", topic)
    return grant(settings.kafka, operation, "topic", f"{settings.app}.", prefixed=True)


def judge_clickhouse(
    facts: ClickHouseFacts, roles: Collection[str] = DATA_PATH
) -> Iterator[Finding]:
    """Yield every finding about rights in ClickHouse that these roles need."""
    on_tables = [
        (right, readable(name))
        for name, table in facts.tables.items()
        if table is not None
        for right in table.missing
    ]
    for right, place in (*on_tables, *facts.missing):
        if any(_needs(role, right, place) for role in roles):
            yield _lacks("right-table", facts.user, right, place)
    if "loader" in roles:
        yield from (_lacks("right-evidence", facts.user, *right) for right in facts.evidence)


def _lacks(code: str, user: str, right: str, place: str) -> Finding:
    return report(
        code,
        f"user {user} has no {right} on {place}",
        f"GRANT {right} ON {place} TO {readable_user(user)}",
    )


def _needs(role: str, right: str, place: str) -> bool:
    """Whether the role needs one of the rights that were asked for."""
    if role == "loader":
        return True
    if role == "verifier":
        return right == "SELECT" and not place.startswith("system.")
    return right == "SHOW COLUMNS"
