"""Decides which tables may receive rows; pure.

Receives a table's name, or its columns, gives why no row may go there. The relay asks before it
seals a block, the loader before it inserts one: a producer names the table of its rows, and rows
that it sent for the loader's ledger would decide which blocks are loaded.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated

from pydantic import AfterValidator

from relay import names

LEDGER = "ledger"
"""The ledger's table, in `loader.database`."""
LEDGER_COLUMNS = frozenset(
    {"app", "table", "block", "state", "attempt", "claim", "seen", "stamped", "record"}
)
"""That every version's ledger has (loader.clickhouse.ledger_table). A table that has them all is
one, wherever it is: another app's, or one of before `loader.database` was changed."""
LEDGER_LATER = frozenset({"transform", "sent", "left_out", "version"})
"""That ledgers of earlier versions have not; the loader adds them at its start."""
LEDGER_KEY = "ORDER BY (app, table, block, attempt)"
"""What the ledger's table is sorted by. Earlier versions left out the attempt, by which the last
position of a journal's partition is found among those before it."""
DESCRIPTION = (
    "tables that may receive rows, as database.table; * stands for any part of a name. A message "
    "for any other table becomes a dead letter, and a block for it is parked. Empty: every table. "
    "ClickHouse's own tables and ledgers are never allowed"
)
_CLICKHOUSES_OWN = frozenset({"system", "information_schema", "_temporary_and_external_tables"})
_PATTERN = re.compile(r"[A-Za-z0-9_*]+\.[A-Za-z0-9_*]+")


def _check_patterns(patterns: list[str]) -> list[str]:
    for pattern in patterns:
        if not _PATTERN.fullmatch(pattern):
            raise ValueError(
                f"{pattern!r} is not database.table, where * may stand for any part of a name"
            )
    return patterns


Patterns = Annotated[list[str], AfterValidator(_check_patterns)]


class Targets:
    """Tables that rows of one app may go into, by its ledger's database and source.tables."""

    def __init__(self, database: str, patterns: Collection[str] = ()) -> None:
        self._ledger = f"{database}.{LEDGER}"
        self._patterns = [
            re.compile(".*".join(map(re.escape, pattern.split("*")))) for pattern in patterns
        ]

    def refusal(self, table: str) -> str:
        """Return why no row may go into the table; empty: it may."""
        database, _ = names.split_table(table)
        if database.lower() in _CLICKHOUSES_OWN:
            return f"table {table} is ClickHouse's own"
        if table == self._ledger:
            return ledger_refusal(table)
        if self._patterns and not any(pattern.fullmatch(table) for pattern in self._patterns):
            return f"table {table} is not among source.tables"
        return ""


def ledger_refusal(table: str) -> str:
    """Return why no row may go into a ledger."""
    return (
        f"table {table} is a loader's ledger, which records which blocks are loaded; no rows may "
        "go into it"
    )


def is_ledger(columns: Collection[str]) -> bool:
    """Return whether a table with these columns is a loader's ledger."""
    return set(columns) >= LEDGER_COLUMNS
