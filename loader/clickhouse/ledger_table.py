"""The ledger's columns, and the statements that make the table or bring it up to date. Pure.

The loader makes it as MergeTree, right for a single server. On a cluster people make it beforehand
(`create_replicated`): the loader uses what it finds.
"""

# pure

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from relay.clickhouse.quoting import literal, readable_name
from relay.clickhouse.table_engine import TableEngine
from relay.config.allowed_tables import LEDGER_KEY, LEDGER_LATER
from relay.errors import ContractBroken, ErrorPage

_AT = "DEFAULT now64(3)"
_FROM_THE_CLOCK = re.compile(r"\bnow(64)?\(")
COLUMNS: Mapping[str, str] = {
    "app": "LowCardinality(String)",
    "table": "LowCardinality(String)",  # empty in position rows
    "block": "String",  # in position rows the journal's topic id and partition
    "state": "LowCardinality(String)",  # prepared, loaded, parked, discarded, dead, aside; position
    "attempt": "Int64",  # in position rows the next journal offset
    "claim": "String",
    "seen": "Int64",
    "stamped": "Bool",
    "rows": "UInt64",  # that an INSERT under the claim inserts
    "reason": "String",
    # In base64, to resolve it by: of a parked block its journal record; of a claim that leaves
    # messages out, that of the block which they make.
    "record": "String",
    "at": f"DateTime64(3) {_AT}",
    "transform": "String",  # version of what made the rows; empty: they are the block's
    # alone, under its token; unremembered: the table had no window; maybe together; as dead letters
    "sent": "LowCardinality(String)",
    "left_out": "UInt64",  # rows of messages that the table refuses; of a claim, and of loaded
    # ClickHouse's, as the loader met it before the claim: other versions may not know its token.
    "version": "LowCardinality(String)",
}


def check_engine(name: str, engine: str) -> None:
    """Check that the engine keeps every row that is written.

    `engine`: system.tables.engine; empty: there is no table.

    Raises:
        ContractBroken: the engine keeps no rows itself, or merges them into others.
    """
    if engine and not TableEngine(engine).is_merge_tree:
        raise ContractBroken(
            f"the ledger {name} is a {engine}, not a MergeTree: what is read from it need not be "
            "all that was written, so blocks that are loaded could look as if they were not",
            "Stop all loaders and make the ledger anew as MergeTree, or on a cluster as "
            "ReplicatedMergeTree under one path for all replicas, with the same columns and "
            f"{LEDGER_KEY}: rename {name}, create it, and copy the rows that it shows.",
            page=ErrorPage.LEDGER_TABLE,
        )
    if TableEngine(engine).merges_rows:
        raise ContractBroken(
            f"the ledger {name} is a {engine}, which merges rows away: blocks that are loaded "
            "would look as if they were not",
            "Recreate it as MergeTree, or ReplicatedMergeTree, with the same columns and "
            f"{LEDGER_KEY}: rename {name}, create it, and copy the rows.",
        )


def check_clock(name: str, kind: str, expression: str) -> None:
    """Check that each row gets the time when it is written.

    `kind` and `expression`: of the default of its column `at`, as DESCRIBE TABLE gives it.

    Raises:
        ContractBroken: rows get none, so that they count as of 1970.
    """
    if kind not in {"DEFAULT", "MATERIALIZED"} or not _FROM_THE_CLOCK.search(expression):
        found = f"{kind} {expression}".strip() or "no default"
        raise ContractBroken(
            f"column at of the ledger {name} has {found} where it needs {_AT}: rows do "
            "not say when they were written, so how old a claim is would be wrong, and "
            "`loader ledger clean` would take each row for an old one",
            f"ALTER TABLE {name} MODIFY COLUMN at {COLUMNS['at']}; then start the loader again. "
            "Rows that are there keep the time that they have.",
            page=ErrorPage.LEDGER_TABLE,
        )


def create(name: str, engine: str = "MergeTree") -> str:
    """Return the statement that makes the table; `name` is quoted."""
    columns = ", ".join(f"{column} {kind}" for column, kind in COLUMNS.items())
    return f"CREATE TABLE IF NOT EXISTS {name} ({columns}) ENGINE = {engine} {LEDGER_KEY}"


def create_replicated(database: str) -> tuple[str, str]:
    """Return the statements that make a cluster's ledger, for a person to run on each replica.

    The path is the same on all of them; each server's macro `replica` says another name.
    """
    name, path = readable_name(database), literal(f"/clickhouse/tables/{database}.ledger")
    table = create(f"{name}.ledger", f"ReplicatedMergeTree({path}, '{{replica}}')")
    return f"CREATE DATABASE IF NOT EXISTS {name}", table


def make_on_replicas(database: str) -> str:
    """Return the step that makes a cluster's ledger."""
    return f"Run this on each of them: {'; '.join(create_replicated(database))}"


def replace_on_replicas(database: str) -> str:
    """Return the steps that put a cluster's ledger in the place of one server's, with its rows."""
    name, made = readable_name(database), "; ".join(create_replicated(database))
    copy = f"INSERT INTO {name}.ledger SELECT * FROM {name}.ledger_before"  # noqa: S608 - quoted
    return (
        f"Stop all loaders. On the server that has the table: RENAME TABLE {name}.ledger TO "
        f"{name}.ledger_before. On each of them: {made}. Then on that server: {copy}, without "
        "which blocks that are loaded would be loaded again"
    )


def add_columns(name: str, found: Collection[str]) -> str:
    """Return the statement that adds what a table with these columns lacks; empty: nothing.

    Raises:
        ContractBroken: it lacks columns that every ledger has had.
    """
    missing = [column for column in COLUMNS if column not in found]
    if others := [column for column in missing if column not in LEDGER_LATER]:
        raise ContractBroken(
            f"{name} has no column {', '.join(others)}",
            "Set loader.database to a database whose table `ledger` belongs to block-relay, or to "
            "a new one.",
        )
    added = ", ".join(f"ADD COLUMN IF NOT EXISTS {column} {COLUMNS[column]}" for column in missing)
    return f"ALTER TABLE {name} {added}" if added else ""


def insert_columns(condition: str) -> str:
    """Return the part of an INSERT that names the columns of rows sent along.

    `condition`: in SQL, on which the server takes the rows; "": always.
    """
    columns = {column: kind for column, kind in COLUMNS.items() if column != "at"}
    listed = ", ".join(columns)
    if not condition:
        return f"({listed})"
    structure = ", ".join(f"{column} {kind}" for column, kind in columns.items())
    # Evaluated when the statement runs, however late it came.
    return f"({listed}) SELECT {listed} FROM input('{structure}') WHERE {condition}"  # noqa: S608 - constants, and values bound
