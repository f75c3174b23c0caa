"""The statements that make a campaign's tables, with the views behind them. Pure.

Receives a table of tests.chaos.rows, gives SQL that makes what is not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.chaos.rows import COLUMNS, EXPIRES_EVERY

if TYPE_CHECKING:
    from tests.chaos.rows import Table

DATABASE = "chaos"
_OVER, _NEVER = 946_684_800, 4_102_444_800
"""Unix seconds of the years 2000 and 2100."""


def name(table: Table) -> str:
    """With its database."""
    return f"{DATABASE}.{table.name}"


def seen(table: Table) -> str:
    """The table that the view behind this one writes into."""
    return f"{DATABASE}.{table.name}_seen"


def statements(table: Table, window: int) -> list[str]:
    """What makes it; `window`: of deduplication tokens, where the table has none of its own."""
    stamp = ", _block String" if table.stamped else ""
    expiry = f"TTL toDateTime(if(n % {EXPIRES_EVERY} = 0, {_OVER}, {_NEVER}))"
    parts = f"SETTINGS non_replicated_deduplication_window = {table.window or window}"
    kind = "ENGINE = MergeTree ORDER BY (p, n)"
    made = f"CREATE TABLE IF NOT EXISTS {name(table)} ({COLUMNS}{stamp}) {kind} "
    found = [f"{made} {expiry if table.expires else ''} {parts}"]
    if table.viewed:
        view = f"CREATE MATERIALIZED VIEW IF NOT EXISTS {name(table)}_view TO {seen(table)} AS "
        found += [
            f"CREATE TABLE IF NOT EXISTS {seen(table)} ({COLUMNS}) {kind} {parts}",
            f"{view} SELECT p, n, h, v FROM {name(table)}",
        ]
    return found
