"""What the target tables say: columns, part counters, rows of a block, running INSERTs.

Receives table names and blocks, gives plain values for loader.plan. Never writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clickhouse_connect.driver.exceptions import ClickHouseError

from loader.clickhouse import failure, literal, quoted, quoted_table
from loader.plan import Facts
from loader.window import Window, window
from relay import names
from relay.errors import Refused
from relay.replicas import is_shared
from relay.targets import is_ledger

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from clickhouse_connect.driver.httpclient import HttpClient

    from loader.plan import Run
    from relay.records_pb2 import Block

COUNTERS = {
    "global": "SELECT max(max_block_number) FROM system.parts",
    "partitions": "SELECT sum(n) FROM (SELECT max(max_block_number) + 1 AS n FROM system.parts",
}
"""SQL of the part counter; inactive parts count too, they were inserted as well."""
_ALL_COUNTERS = (
    "SELECT database || '.' || table, max(newest), sum(newest + 1) FROM ("
    "SELECT database, table, max(max_block_number) AS newest FROM system.parts WHERE "
    "database IN {databases:Array(String)} AND table IN {names:Array(String)} "
    "GROUP BY database, table, partition_id) GROUP BY database, table"
)
"""The same of several tables in one statement: name, "global", "partitions"."""
_NEWEST = "toInt64OrZero(splitByChar('_', _part)[3])"
"""A part's max_block_number, from its name: PARTITION_MIN_MAX_LEVEL."""
_THIS_TABLE = "database = {database:String} AND table = {name:String}"
_SHAPE = "toInt64(bitAnd(sum(cityHash64(name, type, default_kind)), 9223372036854775807))"
_INSERTABLE = "default_kind NOT IN ('MATERIALIZED', 'ALIAS')"


@dataclass(frozen=True, slots=True)
class Target:
    """A table as it is now."""

    columns: dict[str, str]
    """Name to type, of the columns that an INSERT may name."""
    shape: int
    """A hash of all columns: another one, and the table was altered or made anew."""
    window: Window
    counter: int

    def stamped(self, block_column: str) -> bool:
        """Whether counting the rows that carry a block's id proves how much of it is here."""
        return block_column in self.columns and self.window.countable

    def by_count(self, block_column: str) -> bool:
        """Whether nothing but counting rows ever decides about a block of it.

        On one server, that is: every statement on the table is seen in its system.processes.
        """
        return self.window.counter == "global" and self.stamped(block_column)


def counter_sql(kind: str) -> str:
    """The part counter of {database:String}.{name:String} as an SQL expression."""
    where = f" WHERE {_THIS_TABLE}"
    if kind == "partitions":
        return f"({COUNTERS[kind]}{where} GROUP BY partition_id))"
    return f"({COUNTERS['global']}{where})"


def shape_sql() -> str:
    """The hash of {database:String}.{name:String}'s columns as an SQL expression."""
    return f"(SELECT {_SHAPE} FROM system.columns WHERE {_THIS_TABLE})"  # noqa: S608 - constants


def arrived(
    targets: Mapping[str, Target], block_column: str, told: Collection[str] = frozenset()
) -> str:
    """SQL about `table`, `block` and `found_rows`, for Ledger.mark: all rows of it have arrived.

    They are counted in parts newer than the table's counter, so it costs the same however large
    the table is. The parts are told by their names: asked of system.parts, a merge in between hid
    its rows from the count (32 blocks of 240, none so). Where counting proves nothing, nothing is
    asked.

    Args:
        targets: by table, as they were before the claim.
        block_column: that holds block ids.
        told: tables about which nothing needs to be asked, as ClickHouse has said it.
    """
    counts, others = [], []
    for table, target in targets.items():
        if table in told or not target.by_count(block_column):
            others.append(literal(table))
            continue
        stamp = quoted(block_column)
        counts.append(
            f"SELECT {literal(table)}, toString({stamp}), count() FROM {quoted_table(table)} "  # noqa: S608 - names are quoted, values bound
            f"WHERE {stamp} IN {{blocks:Array(String)}} AND {_NEWEST} > {target.counter} "
            f"GROUP BY {stamp}"
        )
    either = [f"table IN ({', '.join(others)})"] if others else []
    if counts:
        either.append(f"(table, block, found_rows) IN ({' UNION ALL '.join(counts)})")
    return " OR ".join(either)


class Tables:
    """Questions about tables, through one client.

    Attributes:
        ledgers: tables that were looked at and take no rows, because they are a loader's ledger.

    Args:
        client: of the server, or of the replicas.
        block_column: that holds block ids, in tables that have it.
        several: replicas stand behind the client. A table that is not replicated is refused
            then: what an INSERT left on one would be looked for on another.

    Raises (every method): Unavailable, Refused.
    """

    def __init__(self, client: HttpClient, block_column: str, *, several: bool = False) -> None:
        self._client, self._several = client, several
        self._block_column = block_column
        self._defaults: dict[str, dict[str, int]] = {}
        self.ledgers: set[str] = set()

    def look(self, tables: Collection[str]) -> dict[str, Target]:
        """The tables that exist, by name."""
        databases, plain = _split(tables)
        found = self._ask(
            "SELECT database || '.' || name, engine, engine_full FROM system.tables "
            "WHERE database IN {databases:Array(String)} AND name IN {names:Array(String)}",
            databases=databases,
            names=plain,
        )
        columns: dict[str, tuple[dict[str, str], int]] = {
            table: (dict(some), shape)
            for table, some, shape in self._ask(
                "SELECT database || '.' || table, "  # noqa: S608 - two constants
                f"groupArrayIf((name, type), {_INSERTABLE}), {_SHAPE} FROM system.columns "
                "WHERE database IN {databases:Array(String)} AND table IN {names:Array(String)} "
                "GROUP BY database, table",
                databases=databases,
                names=plain,
            )
        }
        counters = self._counters(tables)
        looks: dict[str, Target] = {}
        for table, engine, engine_full in found:
            if table in tables:
                if self._several and not is_shared(engine):
                    raise Refused(
                        f"clickhouse.url names several replicas, and {table} is not replicated: "
                        f"it is a {engine}",
                        "Make it a ReplicatedMergeTree, or name one replica.",
                    )
                kind = window(engine, engine_full, self._window_defaults(engine))
                known = columns.get(table, ({}, 0))
                if is_ledger(known[0]):
                    self.ledgers.add(table)
                    continue
                looks[table] = Target(*known, kind, _counter(counters, table, kind))
        return looks

    def facts(self, block: Block, run: Run, target: Target, claim_seconds: float) -> Facts:
        """What loader.plan asks about a block that an earlier claim prepared.

        Args:
            block: asked about.
            run: its attempt, which says whether counting proves anything.
            target: its table.
            claim_seconds: age of the oldest claim.
        """
        table = quoted_table(block.table)
        running = self._ask(
            "SELECT count() FROM system.processes "  # noqa: S608 - constants
            "WHERE " + names.is_of_block("Settings['log_comment']"),
            block=block.id,
        )[0][0]
        if running or not run.all_stamped:
            counted = None
        else:
            stamp = quoted(self._block_column)
            counted = self._ask(
                f"SELECT count() FROM {table} WHERE {stamp} = {{block:String}}",  # noqa: S608 - names are quoted, values bound
                block=block.id,
            )[0][0]
        margin = target.window.margin(claim_seconds)
        newest = _counter(self._counters({block.table}), block.table, target.window)
        return Facts(counted, newest, margin, running=bool(running))

    def _counters(self, tables: Collection[str]) -> dict[str, dict[str, int]]:
        """By table and kind, of those that have parts."""
        databases, plain = _split(tables)
        rows = self._ask(_ALL_COUNTERS, databases=databases, names=plain)
        return {table: {"global": newest, "partitions": total} for table, newest, total in rows}

    def _window_defaults(self, engine: str) -> dict[str, int]:
        """The server's defaults for tables of this engine."""
        replicated = engine.startswith(("Replicated", "Shared"))
        source = "replicated_merge_tree_settings" if replicated else "merge_tree_settings"
        if source not in self._defaults:
            rows = self._ask(
                f"SELECT name, toInt64(value) FROM system.{source} WHERE name IN "  # noqa: S608 - one of two constants
                "('non_replicated_deduplication_window', 'replicated_deduplication_window', "
                "'replicated_deduplication_window_seconds')"
            )
            self._defaults[source] = {name: int(value) for name, value in rows}
        return self._defaults[source]

    def _ask(self, sql: str, **parameters: object) -> list[Sequence[Any]]:
        try:
            return list(self._client.query(sql, parameters=parameters).result_rows)
        except ClickHouseError as error:
            raise failure(error, "asking about the tables") from error


def _split(tables: Collection[str]) -> tuple[list[str], list[str]]:
    """Databases and names, in the order of the tables."""
    pairs = [names.split_table(table) for table in sorted(tables)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _counter(found: Mapping[str, Mapping[str, int]], table: str, kind: Window) -> int:
    return -1 if kind.counter == "none" else found.get(table, {}).get(kind.counter, 0)
