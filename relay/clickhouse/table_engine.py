"""What a table's engine and its settings say of its rows and of deduplication tokens; pure.

Receives `engine` and `engine_full` of system.tables, gives the window, and whether rows are merged.
Both the loader, which decides by it, and the doctor, which warns, read it here.
"""

# pure

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

_MERGE_TREE = re.compile(r"(Replicated|Shared)?([A-Za-z]*)MergeTree")


class DeduplicationWindow(NamedTuple):
    """How far back a table remembers tokens: so many parts, so many seconds (None: any age)."""

    setting: str
    parts: int
    seconds: int | None


@dataclass(frozen=True, slots=True)
class TableEngine:
    """Of one table.

    Attributes:
        name: system.tables.engine.
        full: system.tables.engine_full, with the clauses behind the engine.
    """

    name: str
    full: str = ""

    @property
    def is_merge_tree(self) -> bool:
        """Whether it is of the MergeTree family."""
        return _MERGE_TREE.fullmatch(self.name) is not None

    @property
    def is_replicated(self) -> bool:
        """Whether it is of the MergeTree family, and holds the same on each replica."""
        match = _MERGE_TREE.fullmatch(self.name)
        return match is not None and match[1] is not None

    @property
    def merges_rows(self) -> bool:
        """Whether rows once inserted may be merged away, as in ReplacingMergeTree."""
        match = _MERGE_TREE.fullmatch(self.name)
        return match is not None and match[2] != ""

    def setting(self, name: str, defaults: Mapping[str, int | str]) -> int:
        """Return a setting: the table's own, else the server's, else 0."""
        own = re.search(rf"\b{name} = (\d+)", self.full.rpartition(" SETTINGS ")[2])
        return int(own[1] if own else defaults.get(name, 0))

    def window(self, defaults: Mapping[str, int | str]) -> DeduplicationWindow | None:
        """Return the deduplication window; None where the engine has none.

        Args:
            defaults: the server's MergeTree settings of tables that are, or are not, replicated.
        """
        if not self.is_merge_tree:
            return None
        name = f"{'' if self.is_replicated else 'non_'}replicated_deduplication_window"
        seconds = self.setting(f"{name}_seconds", defaults) if self.is_replicated else None
        return DeduplicationWindow(name, self.setting(name, defaults), seconds)
