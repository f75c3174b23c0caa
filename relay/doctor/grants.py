"""The least rights of each role, in Kafka and in ClickHouse, and the commands that grant them.

Receives the app's settings and the names of its tables, gives rights as values and as text;
pure. `relay doctor --grants` prints them; relay.doctor.rights judges what is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from relay import names
from relay.doctor.commands import grant, principal, quoted

if TYPE_CHECKING:
    from relay.settings import Brokers, Settings

READ_BY_LOADER = (
    "system.tables",
    "system.columns",
    "system.parts",
    "system.processes",
    "system.merge_tree_settings",
    "system.replicated_merge_tree_settings",
)
ANY_TABLE = "<database>.<table>"
"""Stands for the target tables where none was named."""


@dataclass(frozen=True, slots=True)
class KafkaRight:
    """One operation on one resource, or on all that begin with its name.

    Attributes:
        operation: as kafka-acls writes it.
        kind: topic, group or transactional-id.
        name: of the resource.
        prefixed: whether `name` is only its beginning.
        why: what it is for.
    """

    operation: str
    kind: str
    name: str
    why: str
    prefixed: bool = False


@dataclass(frozen=True, slots=True)
class ClickHouseRight:
    """Privileges, as GRANT writes them, on a table or a whole database."""

    privileges: str
    place: str


@dataclass(frozen=True, slots=True)
class Role:
    """Whoever runs some of the programs, as a user of its own.

    Attributes:
        name: of the role.
        runs: the commands that these rights are for.
    """

    name: str
    runs: str
    kafka: tuple[KafkaRight, ...]
    clickhouse: tuple[ClickHouseRight, ...]


def roles(settings: Settings, tables: Collection[str] = ()) -> list[Role]:
    """All roles, each with exactly what it needs.

    Args:
        settings: of the app.
        tables: targets, as database.table.
    """
    app, source = settings.app, settings.source.topic
    targets = [quoted(table) for table in sorted(tables)] or [ANY_TABLE]
    databases = list(dict.fromkeys(f"{target.rpartition('.')[0]}.*" for target in targets))
    ledger, blocks = f"{settings.loader.database}.*", names.blocks_topic(app, "")
    read_own = KafkaRight("Read", "topic", f"{app}.", "all its topics", prefixed=True)
    look = KafkaRight("Describe", "group", names.group_id(app), "members and floors")
    read_source = KafkaRight("Read", "topic", source, "rows")
    write_source = KafkaRight("Write", "topic", source, "rows")
    rows_of = [ClickHouseRight("SELECT", target) for target in targets]
    return [
        Role(
            "relay",
            "relay run",
            tuple(_of_relay(settings)),
            tuple(ClickHouseRight("SHOW TABLES, SHOW COLUMNS", place) for place in databases),
        ),
        Role(
            "loader",
            "loader run, loader status, loader parked",
            (
                KafkaRight("Read", "topic", names.journal_topic(app), "which blocks are sealed"),
                KafkaRight("Read", "topic", blocks, "their rows", prefixed=True),
            ),
            (
                *(ClickHouseRight("SELECT, INSERT", target) for target in targets),
                ClickHouseRight("CREATE DATABASE, CREATE TABLE, SELECT, INSERT", ledger),
                *(ClickHouseRight("SELECT", relation) for relation in READ_BY_LOADER),
            ),
        ),
        Role(
            "verifier",
            "relay verify, with --deep",
            (read_own, look, read_source),
            (*rows_of, ClickHouseRight("SELECT", ledger)),
        ),
        Role(
            "operator",
            "relay status, blocks, journal, dead ls, dead show, schema",
            (read_own, look, read_source),
            (*rows_of, *(ClickHouseRight("SELECT", at) for at in (ledger, "system.parts"))),
        ),
        Role("retirer", "relay retire", (look, _identities(settings)), ()),
        Role(
            "replayer",
            "relay dead replay",
            (read_own, *_of_replay(app, source)),
            (),
        ),
        Role("producer", "a producer of rows in any language", (write_source,), ()),
        Role(
            "feeder",
            "relay produce, relay.producer: these register tables as the relay does",
            (write_source, *(r for r in _of_relay(settings) if r.kind == "topic")),
            tuple(ClickHouseRight("SHOW TABLES, SHOW COLUMNS", place) for place in databases),
        ),
    ]


def _of_relay(settings: Settings) -> Iterator[KafkaRight]:
    app, source = settings.app, settings.source.topic
    yield _identities(settings)
    yield KafkaRight("Read", "group", names.group_id(app), "membership and floors")
    yield KafkaRight("Read", "topic", source, "rows")
    for operation in ("Read", "Write"):
        yield KafkaRight(operation, "topic", names.journal_topic(app), "the journal")
        yield KafkaRight(operation, "topic", names.schemas_topic(app), "numbers of the fields")
    yield KafkaRight("Write", "topic", names.dead_topic(app), "dead letters")
    yield KafkaRight("Write", "topic", names.blocks_topic(app, ""), "blocks", prefixed=True)
    yield KafkaRight("Create", "topic", f"{app}.", "where they are not there yet", prefixed=True)


def _of_replay(app: str, source: str) -> Iterator[KafkaRight]:
    marks = names.replayed_topic(app)
    yield KafkaRight("Write", "topic", source, "the messages")
    yield KafkaRight("Write", "topic", marks, "marks of what was replayed")
    yield KafkaRight("Create", "topic", marks, "at the first replay")
    yield KafkaRight(
        "Write", "transactional-id", names.replay_transactional_id(app), "message and mark as one"
    )


def _identities(settings: Settings) -> KafkaRight:
    prefix = names.transactional_ids(settings.app, by_partition=settings.crosses)
    return KafkaRight("Write", "transactional-id", prefix, "transactions", prefixed=True)


def as_text(settings: Settings, role: Role) -> Iterator[str]:
    """The commands and statements for a role, as lines; users are those of the settings."""
    yield f"# {role.name}: {role.runs}"
    for right in role.kafka:
        brokers = _brokers(settings, right)
        yield grant(brokers, right.operation, right.kind, right.name, prefixed=right.prefixed)
    user = settings.clickhouse.user
    yield from (f"GRANT {r.privileges} ON {r.place} TO {user};" for r in role.clickhouse)


def as_json(settings: Settings, role: Role) -> dict[str, object]:
    """The same as values."""
    return {
        "role": role.name,
        "runs": role.runs,
        "kafka": [
            {
                "operation": right.operation,
                "resource": right.kind,
                "name": right.name,
                "pattern": "prefixed" if right.prefixed else "literal",
                "principal": principal(_brokers(settings, right)),
                "bootstrap": _brokers(settings, right).bootstrap,
                "why": right.why,
            }
            for right in role.kafka
        ],
        "clickhouse": [
            {"privileges": right.privileges, "on": right.place, "to": settings.clickhouse.user}
            for right in role.clickhouse
        ],
    }


def _brokers(settings: Settings, right: KafkaRight) -> Brokers:
    """Those that have to be told: the group's are the source's."""
    return settings.source_kafka if right.kind == "group" else settings.kafka_of(right.name)
