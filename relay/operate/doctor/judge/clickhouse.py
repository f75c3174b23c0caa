"""Judges ClickHouse: the server's settings, the target tables, the ledger; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from relay import names
from relay.clickhouse.insert_settings import deduplicated
from relay.clickhouse.quoting import readable, readable_name, readable_user
from relay.clickhouse.table_engine import DeduplicationWindow
from relay.config.settings import Settings
from relay.operate.doctor.facts import ClickHouseFacts, Setting, TargetFacts
from relay.operate.doctor.findings import Finding, report
from relay.operate.doctor.fixes import alter, clock_error, set_user, span
from relay.operate.doctor.judge.deduplication import (
    GOOD_WINDOW,
    is_told,
    judge_tries,
    judge_version,
    judge_views,
    window,
)
from relay.operate.doctor.judge.evidence import (
    COMPUTED,
    judge_countable,
    judge_decided,
    uncountable,
)
from relay.operate.doctor.judge.replicas import judge_ledger, judge_quorum
from relay.operate.doctor.versions import OLDEST, version_text
from relay.program.spelling import did_you_mean_table
from relay.records_pb2 import TableSchema
from relay.schema.block_column import as_string, holds
from relay.schema.evolution import ColumnDef, evolve, unsupported_columns

INSERTED_WITH: Mapping[str, str] = {
    **{name: str(value) for name, value in deduplicated("", 0).items() if value != ""},
    "insert_null_as_default": "1",
}
"""What the loader sets for its INSERTs, where a server may have fixed something else."""
REQUIRED = ("insert_deduplication_token", "deduplicate_blocks_in_dependent_materialized_views")
"""Settings that a server must know."""

_LARGEST = 2**63 - 1
"""Of the numbers in a block's id."""


def judge(
    settings: Settings, facts: ClickHouseFacts, outage_seconds: float, *, inserts: bool = True
) -> Iterator[Finding]:
    """Yield every finding about ClickHouseFacts, rights aside.

    The user's settings of INSERTs matter only if it `inserts`.
    """
    if what := clock_error("ClickHouse's", facts.clock):
        mend = "run NTP on this machine and on ClickHouse's (timedatectl set-ntp true)"
        yield report("clickhouse-clock", what, mend)
    if inserts:
        yield from _settings(facts)
    yield from judge_version(facts)
    yield from judge_tries(facts, readable(settings.loader.database))
    if not facts.tables and not facts.unread:
        yield report(
            "no-targets",
            f"no block topic of app {settings.app} was seen, so no target table was checked",
            "name the target tables: relay doctor CONFIG --table database.table",
        )
    for name, table in facts.tables.items():
        if table is None:
            yield report(
                "table-missing",
                f"there is no table {name}, or user {facts.user} may not see it"
                f"{did_you_mean_table(name, facts.others)}",
                f"CREATE TABLE {readable(name)} …; or GRANT SHOW COLUMNS ON "
                f"{readable(name)} TO {readable_user(facts.user)}",
            )
            continue
        yield from _columns(name, table, settings.loader.block_column)
        yield from _table(settings, name, table, facts, outage_seconds)
        yield from judge_views(name, table, facts.windows)
    yield from judge_ledger(settings, facts)


def _settings(facts: ClickHouseFacts) -> Iterator[Finding]:
    """What the server makes of an INSERT of this user's."""
    if not facts.settings:
        return  # could not be asked
    lacking = [name for name in REQUIRED if name not in facts.settings]
    if lacking:
        yield report(
            "clickhouse-old",
            f"the server has no setting {', '.join(lacking)}",
            f"upgrade ClickHouse to {version_text(OLDEST)} or later",
        )
    readonly = facts.settings.get("readonly")
    if readonly is not None and readonly.value == "1":
        yield _fixed(facts, "readonly", readonly, "0")
    for name, wanted in INSERTED_WITH.items():
        setting = facts.settings.get(name)
        if setting is not None and setting.fixed and setting.value != wanted:
            yield _fixed(facts, name, setting, wanted)
    asynchronous = facts.settings.get("async_insert")
    if asynchronous is not None and asynchronous.value != "0" and not asynchronous.fixed:
        yield report(
            "async-insert",
            f"async_insert = {asynchronous.value} by default for user {facts.user}",
            set_user(facts.user, "async_insert = 0"),
        )


def _fixed(facts: ClickHouseFacts, name: str, setting: Setting, wanted: str) -> Finding:
    return report(
        "setting-fixed",
        f"{name} = {setting.value}, but user {facts.user} may not change it",
        set_user(facts.user, f"{name} = {wanted} WRITABLE"),
    )


def _table(
    settings: Settings, name: str, table: TargetFacts, facts: ClickHouseFacts, outage_seconds: float
) -> Iterator[Finding]:
    kept = window(table, facts.windows)
    if kept is None:
        yield report(
            "engine-unfit",
            f"{name}: engine {table.engine}",
            "name the server's own MergeTree table in the header instead"
            if table.engine in {"Distributed", "Buffer", "Null", "View"}
            else f"CREATE TABLE … AS {readable(name)} ENGINE = MergeTree, and move the rows",
        )
        return
    merges = table.table_engine.merges_rows
    if merges:
        yield report(
            "engine-merges",
            f"{name}: engine {table.engine}",
            alter(name, kept.setting, GOOD_WINDOW) if kept.parts < GOOD_WINDOW else "",
        )
    column = settings.loader.block_column
    # Columns or a window that could not be asked are a finding of their own.
    shown, told = bool(table.columns), is_told(table, facts.windows)
    if shown:
        yield from _block_column(settings.app, name, table, column)
    if told:
        counted = not shown or not uncountable(table, column)
        yield from _window(settings, name, kept, outage_seconds, counted=counted)
    yield from judge_countable(name, table, facts, column)
    if shown and told:
        yield from judge_decided(name, table, kept, column)
    yield from _partitions(name, table, facts)
    yield from judge_quorum(name, table, facts, settings.clickhouse.insert_quorum)


def _columns(name: str, table: TargetFacts, block_column: str) -> Iterator[Finding]:
    """What makes every message for the table a dead letter."""
    columns = [ColumnDef(column, *kind) for column, kind in table.columns.items()]
    if not columns:
        return  # they could not be asked, which is a finding of its own
    schema = evolve(None, name, "", columns, block_column) or TableSchema(table=name)
    for problem in unsupported_columns(schema):
        yield report(
            "columns-unsupported",
            problem,
            f"give {readable(name)} columns that an INSERT may fill, of types that rows carry "
            "(relay docs messages#types); or send rows to another, and let a view fill this one",
        )


def _block_column(app: str, name: str, table: TargetFacts, column: str) -> Iterator[Finding]:
    shown = readable_name(column)
    alter_table = f"ALTER TABLE {readable(name)}"
    add = (
        f"ADD COLUMN {shown} String, ADD INDEX {readable_name(f'{column}_index')} {shown} "
        "TYPE bloom_filter GRANULARITY 1"
    )
    if column not in table.columns:
        yield report(
            "block-column-missing", f"{name} has no column {column}", f"{alter_table} {add}"
        )
        return
    type_, default = table.columns[column]
    what = f"{name}: column {column} is {type_} {default}".rstrip()
    longest = names.BlockId(app, name, _LARGEST, _LARGEST, _LARGEST, left_out=True)
    fits = holds(type_, str(longest))
    if default in COMPUTED:
        # ClickHouse has no REMOVE EPHEMERAL, and MODIFY of the type alone keeps the default.
        ordinary = f"MODIFY COLUMN {shown} REMOVE {default}"
        anew = f"DROP COLUMN {shown}, {add}"
        in_place = fits and default != "EPHEMERAL"
        yield report(
            "block-column-computed", what, f"{alter_table} {ordinary if in_place else anew}"
        )
    elif not fits:
        yield report("block-column-type", what, as_string(name, column))


def _window(
    settings: Settings,
    name: str,
    kept: DeduplicationWindow,
    outage_seconds: float,
    *,
    counted: bool,
) -> Iterator[Finding]:
    if kept.parts == 0:
        yield report(
            "window-zero-stamped" if counted else "window-zero",
            f"{name}: {kept.setting} = 0",
            alter(name, kept.setting, GOOD_WINDOW),
        )
    elif counted:
        return
    elif kept.parts < 2 * settings.loader.blocks_per_batch:
        yield report(
            "window-short",
            f"{name}: {kept.setting} = {kept.parts}, which is less than twice "
            f"loader.blocks_per_batch = {settings.loader.blocks_per_batch}",
            alter(name, kept.setting, max(GOOD_WINDOW, 2 * settings.loader.blocks_per_batch)),
        )
    if kept.parts and kept.seconds is not None and kept.seconds < 2 * outage_seconds:
        yield report(
            "window-short",
            f"{name}: {kept.setting}_seconds = {kept.seconds} ({span(kept.seconds)}), which is "
            f"less than twice an outage of {span(outage_seconds)}",
            alter(name, f"{kept.setting}_seconds", round(2 * outage_seconds)),
        )


def _partitions(name: str, table: TargetFacts, facts: ClickHouseFacts) -> Iterator[Finding]:
    limit = facts.settings.get("max_partitions_per_insert_block")
    most = int(limit.value) if limit is not None and limit.value.isdigit() else 0
    if table.partitions is not None and 0 < most < table.partitions:
        yield report(
            "partitions-per-block",
            f"{name}: {table.partitions} partitions (PARTITION BY {table.partition_key}), but one "
            f"INSERT may write to at most max_partitions_per_insert_block = {most}",
            set_user(facts.user, f"max_partitions_per_insert_block = {2 * table.partitions}")
            + "; or partition by longer times",
        )
