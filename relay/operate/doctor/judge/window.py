"""How far back a table remembers deduplication tokens; pure.

The loader judges the same in loader.core.table_rules, where it decides about blocks; here it is
judged apart, so that one mistake is not made twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from relay.operate.doctor.facts import Settings as Values
    from relay.operate.doctor.facts import TargetFacts

GOOD_WINDOW = 10_000
"""Tokens; the default of replicated tables in recent releases."""

_ENGINE = re.compile(r"(Replicated|Shared)?([A-Za-z]*)MergeTree")


class Kept(NamedTuple):
    """How far back a table remembers tokens: so many parts, so many seconds (None: any age)."""

    setting: str
    parts: int
    seconds: int | None


def window(table: TargetFacts, defaults: Mapping[str, Values]) -> Kept | None:
    """Return the deduplication window of a table; None where its engine has none."""
    match = _ENGINE.fullmatch(table.engine)
    if match is None:
        return None
    replicated = match[1] is not None
    setting = f"{'' if replicated else 'non_'}replicated_deduplication_window"
    source = "replicated_merge_tree_settings" if replicated else "merge_tree_settings"

    def value(name: str) -> int:
        own = re.search(rf"\b{name} = (\d+)", table.engine_full.rpartition(" SETTINGS ")[2])
        return int(own[1] if own else defaults.get(source, {}).get(name, 0))

    return Kept(setting, value(setting), value(f"{setting}_seconds") if replicated else None)


def merges_rows(table: TargetFacts) -> bool:
    """Return whether rows once inserted may be merged away, as in ReplacingMergeTree."""
    match = _ENGINE.fullmatch(table.engine)
    return match is not None and match[2] != ""
