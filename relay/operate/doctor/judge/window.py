"""How far back a table remembers deduplication tokens; pure."""

from __future__ import annotations

from collections.abc import Mapping

from relay.clickhouse.table_engine import DeduplicationWindow, TableEngine
from relay.operate.doctor.facts import TargetFacts, Values

GOOD_WINDOW = 10_000
"""Tokens; the default of replicated tables in recent releases."""


def engine_of(table: TargetFacts) -> TableEngine:
    """Return the table's engine with its clauses."""
    return TableEngine(table.engine, table.engine_full)


def window(table: TargetFacts, defaults: Mapping[str, Values]) -> DeduplicationWindow | None:
    """Return the deduplication window of a table; None where its engine has none."""
    return engine_of(table).window(_of_kind(table, defaults))


def is_told(table: TargetFacts, defaults: Mapping[str, Values]) -> bool:
    """Return whether the server told its defaults: without them a window looks like none."""
    return bool(_of_kind(table, defaults))


def _of_kind(table: TargetFacts, defaults: Mapping[str, Values]) -> Values:
    replicated = engine_of(table).is_replicated
    kind = "replicated_merge_tree_settings" if replicated else "merge_tree_settings"
    return defaults.get(kind, {})
