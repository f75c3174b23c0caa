"""The least rights of each role, in Kafka and ClickHouse, and the commands that grant them; pure.

`relay doctor --grants` prints them; relay.operate.doctor.judge.rights judges what is missing. On a
server with users each is taken away in turn, and missed (tests/doctor).
"""

# pure

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from relay import names
from relay.clickhouse.quoting import readable, readable_user
from relay.clickhouse.replica_log import SEES_LOGS
from relay.config.settings import Brokers, Settings
from relay.operate.doctor.fixes import grant, principal
from relay.operate.doctor.versions import FREE_INPUT, Version, version_text

READ_BY_LOADER = (
    "system.processes",
    "system.merge_tree_settings",
    "system.replicated_merge_tree_settings",
)
CLUSTER = "kafka-cluster"
"""The name of the only resource of kind cluster."""
JUDGED_BY: Mapping[str, str] = {
    "query_log": "which INSERT wrote a block, who removed rows",
    "part_log": "how many rows an INSERT wrote, what was dropped or has expired",
    "query_views_log": "which view failed where an INSERT ended well",
    "mutations": "which rows were deleted",
    "parts": "which dropped parts are there again",
    "replicas": "how many servers have logs of a Replicated table",
}
"""What `relay verify --deep` knows by each system table that its user may read."""
ANY_TABLE = "<database>.<table>"
"""Stands for the target tables where none was named."""


@dataclass(frozen=True, slots=True)
class KafkaRight:
    """One operation on one resource, or on all that begin with its name.

    Attributes:
        operation: as kafka-acls writes it.
        kind: topic, group, transactional-id or cluster.
        prefixed: whether `name` is only the resource's beginning.
        why: what it is for.
        note: what it is good for where the role works without it, for people; empty: needed.
        at_source: whether the source's brokers are meant, where kind and name do not tell.
    """

    operation: str
    kind: str
    name: str
    why: str
    prefixed: bool = False
    note: str = ""
    at_source: bool = False


@dataclass(frozen=True, slots=True)
class ClickHouseRight:
    """Privileges, as GRANT writes them, on a table or a whole database.

    Attributes:
        place: on what.
        before: the first version of ClickHouse that does not ask for it; None: all do.
        note: when it is needed, for people; empty: always.
    """

    privileges: str
    place: str
    before: Version | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Role:
    """Whoever runs some of the programs, as a user of its own; `runs`: these commands."""

    name: str
    runs: str
    kafka: tuple[KafkaRight, ...]
    clickhouse: tuple[ClickHouseRight, ...]


_MAY_PARK = "optional: without it a block whose INSERT got no answer may be parked"
_UNPROVEN = (
    "optional: without it a log never proves that an INSERT did not run, and the part log counts "
    "as missing"
)
_READ = ("parts", "query_log", "part_log", "mutations", "events")
EVIDENCE = (
    *(ClickHouseRight("SELECT", f"system.{table}", note=_MAY_PARK) for table in _READ),
    ClickHouseRight("SYSTEM FLUSH LOGS", "*.*", note=_UNPROVEN),
)
"""By what else the loader knows what became of a block; it works without, and parks more blocks.
Of a log that was not flushed just now it does not know whether it has everything."""


def roles(
    settings: Settings, tables: Collection[str] = (), version: Version | None = None
) -> list[Role]:
    """Return all roles, each with exactly what it needs for these target tables.

    Where ClickHouse's version is not known (None), rights that only some need are there too.
    """
    every = _roles(settings, tables)
    if version is None:
        return every
    return [
        replace(
            role,
            clickhouse=tuple(
                replace(right, before=None)
                for right in role.clickhouse
                if right.before is None or version < right.before
            ),
        )
        for role in every
    ]


def of_loader(settings: Settings, targets: Collection[str]) -> Iterator[ClickHouseRight]:
    """Yield what the loader's user needs in ClickHouse; the target tables are given as SQL."""
    ledger = f"{readable(settings.loader.database)}.*"
    yield from (ClickHouseRight("SELECT, INSERT", target) for target in targets)
    removing = "optional: for loader supersede, which relay rewind starts"
    yield from (ClickHouseRight("ALTER DELETE", target, note=removing) for target in targets)
    behind = "optional: without it a block may be parked whose rows a view or another table gets"
    places = _databases(targets)
    yield from (ClickHouseRight("SHOW TABLES", place, note=behind) for place in places)
    yield ClickHouseRight("CREATE DATABASE, CREATE TABLE, ALTER ADD COLUMN, SELECT, INSERT", ledger)
    cleaning = "optional: for loader ledger clean --run"
    its_table = readable(f"{settings.loader.database}.ledger")
    yield ClickHouseRight("ALTER DELETE", its_table, note=cleaning)
    scratch = f"{readable(settings.loader.database)}.scratch_*"
    alone = "optional: without it a message that its table refuses parks its whole block"
    yield ClickHouseRight("DROP TABLE", scratch, note=alone)
    yield from (ClickHouseRight("SELECT", relation) for relation in READ_BY_LOADER)
    yield INPUT
    yield ClickHouseRight(
        "TABLE ENGINE", "MergeTree", note="where table_engines_require_grant is set"
    )
    yield from _of_replicas("optional: for Replicated tables")
    yield from EVIDENCE
    hides = "optional: lets relay doctor name the policies that hide rows"
    yield ClickHouseRight("SELECT", "system.row_policies", note=hides)
    yield ClickHouseRight(
        "SHOW ROW POLICIES", "*.*", note=f"{hides}, on servers that do not ask for SELECT"
    )


INPUT = ClickHouseRight(
    "CREATE TEMPORARY TABLE",
    "*.*",
    FREE_INPUT,
    "needed if CREATE TABLE, which implies it, is revoked",
)
"""For input(), out of which the loader's INSERT selects."""


def _roles(settings: Settings, tables: Collection[str]) -> list[Role]:
    app, source = settings.app, settings.source.topic
    targets = [readable(table) for table in sorted(tables)] or [ANY_TABLE]
    databases = _databases(targets)
    ledger = f"{readable(settings.loader.database)}.*"
    read_own = KafkaRight("Read", "topic", f"{app}.", "all its topics", prefixed=True)
    look = KafkaRight("Describe", "group", names.group_id(app), "members and floors")
    read_journal = KafkaRight("Read", "topic", names.journal_topic(app), "which members there were")
    read_source = KafkaRight("Read", "topic", source, "rows")
    write_source = KafkaRight("Write", "topic", source, "rows")
    compacts = "optional: --deep then knows whether compaction deletes messages of the source"
    ask_source = KafkaRight("DescribeConfigs", "topic", source, "its policy", note=compacts)
    told = "optional: which INSERT wrote a block, and when"
    logs = [
        ClickHouseRight("SELECT", f"system.{log}", note=told) for log in ("part_log", "query_log")
    ]
    rows_of = [ClickHouseRight("SELECT", target) for target in targets]
    return [
        Role(
            "relay",
            "relay run, relay doctor",
            (*_of_relay(settings), *_optional_of_relay(settings)),
            tuple(_of_catalogue(databases)),
        ),
        Role(
            "loader",
            "loader run, loader status, loader parked",
            tuple(_of_loading(settings)),
            tuple(of_loader(settings, targets)),
        ),
        Role(
            "verifier",
            "relay verify, with --deep",
            (read_own, look, read_source, ask_source),
            (*rows_of, ClickHouseRight("SELECT", ledger), *_of_judgement()),
        ),
        Role(
            "operator",
            "relay status, blocks, journal, dead ls, dead show, schema",
            (read_own, look, read_source),
            (*rows_of, *(ClickHouseRight("SELECT", at) for at in (ledger, "system.parts")), *logs),
        ),
        Role("retirer", "relay retire", (look, read_journal, _identities(settings)), ()),
        Role("replayer", "relay dead replay", (read_own, *_of_replay(app, source)), ()),
        Role(
            "rewinder",
            "relay rewind, which starts loader supersede; relay accept",
            (read_own, read_source, *_of_rewind(settings)),
            tuple(of_loader(settings, targets)),
        ),
        Role("producer", "a producer of rows in any language", (write_source,), ()),
        Role(
            "feeder",
            "relay produce, relay.produce.RowProducer: these register tables as the relay does",
            (write_source, *(r for r in _of_relay(settings) if r.kind == "topic")),
            tuple(_of_catalogue(databases)),
        ),
    ]


def _databases(targets: Iterable[str]) -> list[str]:
    """All that is in the databases of these tables, as SQL."""
    return list(dict.fromkeys(f"{target.rpartition('.')[0]}.*" for target in targets))


def _of_catalogue(databases: Iterable[str]) -> Iterator[ClickHouseRight]:
    yield from (ClickHouseRight("SHOW COLUMNS", place) for place in databases)
    yield from _of_replicas("optional: for Replicated tables, where relays ask several servers")


def _of_replicas(note: str) -> Iterator[ClickHouseRight]:
    """What tells whether a replica has made every ALTER."""
    for table in ("replicas", "replication_queue"):
        yield ClickHouseRight("SELECT", f"system.{table}", note=note)
    yield ClickHouseRight(SEES_LOGS, "system.zookeeper", note=note)


def _of_judgement() -> Iterator[ClickHouseRight]:
    for table, known in JUDGED_BY.items():
        note = f"optional: {known}; --deep says what it does not judge without it"
        yield ClickHouseRight("SELECT", f"system.{table}", note=note)
    keeps = "optional: how many mutations a table shows; without it --deep takes 100, the default"
    yield ClickHouseRight("SELECT", "system.merge_tree_settings", note=keeps)


def _of_relay(settings: Settings) -> Iterator[KafkaRight]:
    app, source = settings.app, settings.source.topic
    yield _identities(settings)
    yield KafkaRight("Read", "group", names.group_id(app), "membership and floors")
    yield KafkaRight("Read", "topic", source, "rows")
    for operation in ("Read", "Write"):
        yield KafkaRight(operation, "topic", names.journal_topic(app), "the journal")
        yield KafkaRight(operation, "topic", names.schemas_topic(app), "numbers of the fields")
    yield KafkaRight("Write", "topic", names.dead_topic(app), "dead letters")
    yield KafkaRight("Write", "topic", names.blocks_prefix(app), "blocks", prefixed=True)
    yield KafkaRight("Create", "topic", f"{app}.", "if the topics do not exist yet", prefixed=True)


def _optional_of_relay(settings: Settings) -> Iterator[KafkaRight]:
    """What relay and doctor work without; a feeder grows no topics."""
    own, source = f"{settings.app}.", settings.source.topic
    grows = "optional: block topics then begin narrow, and all topics grow with the source"
    yield KafkaRight("Alter", "topic", own, "their growth", prefixed=True, note=grows)
    asks, why = "DescribeConfigs", "settings"
    judges = "optional: relay doctor then judges the settings of brokers and topics"
    for at_source in (False, True) if settings.crosses else (False,):
        yield KafkaRight(asks, "cluster", CLUSTER, why, note=judges, at_source=at_source)
    yield KafkaRight(asks, "topic", source, why, note=judges)
    yield KafkaRight(asks, "topic", own, why, prefixed=True, note=judges)


def _of_loading(settings: Settings) -> Iterator[KafkaRight]:
    app = settings.app
    yield KafkaRight("Read", "topic", names.journal_topic(app), "which blocks are sealed")
    yield KafkaRight("Read", "topic", names.blocks_prefix(app), "their rows", prefixed=True)
    if settings.loader.rejected == "dead":
        refused = "messages that a table refuses"
        yield KafkaRight("Read", "topic", settings.source.topic, refused)
        yield KafkaRight("Read", "topic", names.dead_topic(app), "whether they are dead letters")
        yield KafkaRight("Write", "topic", names.dead_topic(app), refused)
        identity = names.left_out_transactional_id(app)
        yield KafkaRight("Write", "transactional-id", identity, "each of them once")


def _of_replay(app: str, source: str) -> Iterator[KafkaRight]:
    marks = names.replayed_topic(app)
    yield KafkaRight("Write", "topic", source, "the messages")
    yield KafkaRight("Write", "topic", marks, "marks of what was replayed")
    yield KafkaRight("Create", "topic", marks, "for the first replay")
    identity = names.replay_transactional_id(app)
    why = "to write message and mark in one transaction"
    yield KafkaRight("Write", "transactional-id", identity, why)


def _of_rewind(settings: Settings) -> Iterator[KafkaRight]:
    app = settings.app
    yield KafkaRight("Read", "group", names.group_id(app), "to take its place and move its floors")
    yield KafkaRight("Write", "topic", names.journal_topic(app), "what was done, and why")
    identity = names.rewind_transactional_id(app)
    yield KafkaRight("Write", "transactional-id", identity, "record and floors at once")
    if settings.loader.rejected == "dead":
        identity = names.left_out_transactional_id(app)
        fencing = "to fence whoever may write dead letters of a block that is discarded"
        yield KafkaRight("Write", "transactional-id", identity, fencing)


def _identities(settings: Settings) -> KafkaRight:
    prefix = names.transactional_ids(settings.app, by_partition=settings.crosses)
    return KafkaRight("Write", "transactional-id", prefix, "transactions", prefixed=True)


def as_text(settings: Settings, role: Role) -> Iterator[str]:
    """Yield the commands and statements for a role, as lines; users are those of the settings."""
    yield f"# {role.name}: {role.runs}"
    for right in role.kafka:
        brokers = _brokers(settings, right)
        note = f" # {right.note}" if right.note else ""
        command = grant(brokers, right.operation, right.kind, right.name, prefixed=right.prefixed)
        yield f"{command}{note}"
    user = readable_user(settings.clickhouse.user)
    for privilege in role.clickhouse:
        note = f" -- {when}" if (when := _when(privilege)) else ""
        yield f"GRANT {privilege.privileges} ON {privilege.place} TO {user};{note}"


def _when(right: ClickHouseRight) -> str:
    """When a right is needed, for people; empty: always."""
    before = "" if right.before is None else f"only before ClickHouse {version_text(right.before)}"
    return "; ".join(filter(None, (before, right.note)))


def as_json(settings: Settings, role: Role) -> dict[str, object]:
    """Return the same as values."""
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
                "when": right.note,
            }
            for right in role.kafka
        ],
        "clickhouse": [
            {
                "privileges": right.privileges,
                "on": right.place,
                "to": settings.clickhouse.user,
                "when": _when(right),
            }
            for right in role.clickhouse
        ],
    }


def _brokers(settings: Settings, right: KafkaRight) -> Brokers:
    """Return the brokers that need the right; the group is at those of the source."""
    at_source = right.at_source or right.kind == "group"
    return settings.source_kafka if at_source else settings.kafka_of(right.name)
