"""What a table's engine and its clauses say of its rows and of deduplication tokens; pure.

Receives `engine` and `engine_full` of system.tables, gives the window, and whether rows stay. Both
the loader, which decides by it, and the doctor, which warns, read it here.
"""

# pure

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

_MERGE_TREE = re.compile(r"(Replicated|Shared)?([A-Za-z]*)MergeTree")
_STAYS = re.compile(r"[^,]*\b(?:TO (?:DISK|VOLUME)|RECOMPRESS)\b[^,]*")
"""Rules of a TTL after which rows are still there: they are moved or recompressed."""


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

    @property
    def expiry(self) -> str:
        """The TTL as far as it deletes rows; empty where none does."""
        clause = self.full.partition(" TTL ")[2].partition(" SETTINGS ")[0]
        return _STAYS.sub("", clause).strip(", ")

    def window(self, defaults: Mapping[str, int | str]) -> DeduplicationWindow | None:
        """Return the deduplication window; None where the engine has none.

        Args:
            defaults: the server's MergeTree settings of tables that are, or are not, replicated;
                the table's own SETTINGS override them.
        """
        if not self.is_merge_tree:
            return None

        def setting(name: str) -> int:
            own = re.search(rf"\b{name} = (\d+)", self.full.rpartition(" SETTINGS ")[2])
            return int(own[1] if own else defaults.get(name, 0))

        if not self.is_replicated:
            name = "non_replicated_deduplication_window"
            return DeduplicationWindow(name, setting(name), None)
        name = "replicated_deduplication_window"
        return DeduplicationWindow(name, setting(name), setting(f"{name}_seconds"))
