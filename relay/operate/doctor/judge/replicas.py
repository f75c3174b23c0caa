"""Judges replicated tables, and whether the ledger keeps its rows wherever it is asked; pure."""

from __future__ import annotations

from collections.abc import Iterator

from relay.clickhouse.quoting import readable
from relay.config.allowed_tables import LEDGER_KEY
from relay.config.settings import Settings
from relay.operate.doctor.facts import ClickHouseFacts, TargetFacts
from relay.operate.doctor.findings import Finding, report
from relay.operate.doctor.fixes import exempt, set_user
from relay.operate.doctor.judge.evidence import expiry
from relay.program.plural import several


def judge_quorum(
    name: str, table: TargetFacts, facts: ClickHouseFacts, own: int | str | None = None
) -> Iterator[Finding]:
    """Yield every finding about a table's replicas; `own`: what clickhouse.insert_quorum says."""
    replica = table.replica
    if replica is None:
        return
    if replica.readonly:
        yield report(
            "replica-readonly",
            f"{name}: this replica is read-only",
            f"SYSTEM RESTORE REPLICA {readable(name)}; or repair its connection to Keeper",
        )
    if replica.replicas < 2:  # nothing to acknowledge it besides itself
        return
    if own is not None:
        value, mend = str(own), "clickhouse."
    elif (of_user := facts.settings.get("insert_quorum")) is not None:
        value, mend = of_user.value, set_user(facts.user, "")
    else:
        return
    quorum = _quorum(value, replica.replicas)
    if quorum < 2:
        yield report(
            "quorum-one",
            f"{name}: {replica.replicas} replicas, but insert_quorum = {value}",
            f"{mend}insert_quorum = 2",
        )
        return
    if quorum > replica.active:
        yield report(
            "quorum-unreachable",
            f"{name}: insert_quorum = {value} of {replica.replicas} replicas, but only "
            f"{replica.active} are active",
            f"start the other replicas, or {mend}insert_quorum = {replica.active}",
        )
    parallel = facts.settings.get("insert_quorum_parallel")
    # With a quorum of its own the loader orders them itself, so that replicas know what they lack.
    if own is None and parallel is not None and parallel.value == "0":
        yield report(
            "quorum-serial",
            f"{name}: insert_quorum = {value} with insert_quorum_parallel = 0",
            set_user(facts.user, "insert_quorum_parallel = 1"),
        )


def _quorum(value: str, replicas: int) -> int:
    """`auto` is a majority; text that is no number counts as no quorum."""
    if value == "auto":
        return replicas // 2 + 1
    return int(value) if value.isdigit() else 0


def judge_ledger(settings: Settings, facts: ClickHouseFacts) -> Iterator[Finding]:
    """Yield several servers behind one URL; a ledger that loses rows, or is on fewer servers."""
    if len(facts.servers) > 1 and settings.clickhouse.insert_quorum is None:
        yield report(
            "several-servers",
            f"several servers answered at clickhouse.url {settings.clickhouse.url}: "
            f"{' and '.join(facts.servers)}",
            'set clickhouse.insert_quorum = "auto", or name one replica\'s own address in '
            "clickhouse.url",
        )
    yield from _unmet(settings, facts)
    ledger, place = facts.ledger, f"{readable(settings.loader.database)}.ledger"
    if ledger is None:
        return
    if ledger.policies:
        yield report(
            "ledger-hidden",
            f"{', '.join(ledger.policies)} hides rows of the ledger {place} from user {facts.user}",
            exempt(place, facts.user),
        )
    yield from _ledger_keeps(place, ledger)
    yield from _ledger_spreads(settings, facts, place, ledger)


def _ledger_spreads(
    settings: Settings, facts: ClickHouseFacts, place: str, ledger: TargetFacts
) -> Iterator[Finding]:
    """Whether as many servers hold it as hold a target table."""
    held = {
        name: 0 if table.replica is None else table.replica.replicas
        for name, table in facts.tables.items()
        if table is not None and table.table_engine.is_replicated
    }
    if not held:
        return
    name = max(held, key=lambda table: held[table])
    engine = ledger.table_engine
    # An engine that keeps no rows is a finding of its own.
    if engine.is_merge_tree and not engine.is_replicated:
        # Without ON CLUSTER the default path, which has the table's UUID in it, is refused (36).
        path = f"/clickhouse/tables/{settings.loader.database}.ledger"
        yield report(
            "ledger-local",
            f"{place}: engine {ledger.engine}, although {name} is replicated",
            _anew(place, "local", f"ReplicatedMergeTree('{path}', '{{replica}}') {LEDGER_KEY}")
            + f"; then on each other replica what SHOW CREATE TABLE {place} shows here",
        )
    elif ledger.replica is not None and ledger.replica.replicas < held[name]:
        yield report(
            "ledger-local",
            f"{place} has {several(ledger.replica.replicas, 'replica')}, although {name} has "
            f"{held[name]}",
            "on each replica that has no such ledger yet, what this shows here: SHOW CREATE TABLE "
            f"{place} SETTINGS show_table_uuid_in_table_create_query_if_not_nil = 1",
        )


def _unmet(settings: Settings, facts: ClickHouseFacts) -> Iterator[Finding]:
    """One server behind the only URL, though there are more, each of which may run an INSERT."""
    if settings.clickhouse.insert_quorum is None or len(facts.servers) != 1:
        return
    tables = {**facts.tables, f"{settings.loader.database}.ledger": facts.ledger}
    for name, table in tables.items():
        if table is not None and table.replica is not None and table.replica.active > 1:
            yield report(
                "replicas-unmet",
                f"{name}: {table.replica.active} active replicas, but every connection to "
                f"clickhouse.url {settings.clickhouse.url} reached {facts.servers[0]}",
                "name each replica in clickhouse.url",
            )
            return


def _ledger_keeps(place: str, ledger: TargetFacts) -> Iterator[Finding]:
    """Whether all rows that are written to it stay."""
    if not ledger.table_engine.is_merge_tree:
        yield report(
            "ledger-unfit",
            f"{place}: engine {ledger.engine}",
            _anew(
                place,
                "unfit",
                f"MergeTree {LEDGER_KEY}, or on a cluster ReplicatedMergeTree under one path for "
                "all replicas",
            ),
        )
    if ledger.table_engine.merges_rows:
        yield report(
            "ledger-merges",
            f"{place}: engine {ledger.engine}",
            _anew(place, "merged", f"MergeTree {LEDGER_KEY}"),
        )
    if expires := expiry(ledger):
        yield report(
            "ledger-expires",
            f"{place}: rows expire (TTL {expires})",
            f"ALTER TABLE {place} REMOVE TTL; `loader ledger clean CONFIG` shows what may go",
        )


def _anew(place: str, was: str, engine: str) -> str:
    """How a ledger is made in this engine, with the rows that it has."""
    return (
        f"with the loader stopped: RENAME TABLE {place} TO {place}_{was}; CREATE TABLE {place} AS "  # noqa: S608 - text for people
        f"{place}_{was} ENGINE = {engine}; INSERT INTO {place} SELECT * FROM {place}_{was}"
    )
