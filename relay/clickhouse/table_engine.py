"""Read what a table's definition says of its rows: its engine, its TTLs, its settings; pure.

Receives `engine`, `engine_full` and `create_table_query` of system.tables; gives the window of
deduplication tokens, whether rows are merged, and which rows expire. The loader, which decides by
it, the verifier, which judges by it, and the doctor, which warns, read it here.
"""

# pure

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

_MERGE_TREE = re.compile(r"(Replicated|Shared)?([A-Za-z]*)MergeTree")
_TEXT = re.compile(r"'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`")
_TTL = re.compile(r"\sTTL\s")
_KEEPS = re.compile(r"\b(?:TO (?:DISK|VOLUME)|RECOMPRESS)\b")
"""What a TTL may do to rows instead of deleting them."""


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
    def merging(self) -> str:
        """The prefix of an engine that merges rows into others, as Summing; "": it does not."""
        match = _MERGE_TREE.fullmatch(self.name)
        return match[2] if match else ""

    @property
    def merges_rows(self) -> bool:
        """Whether rows once inserted may be merged away, as in ReplacingMergeTree."""
        return self.merging != ""

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

    def deleting_ttls(self) -> Iterator[str]:
        """Yield the TTL rules that delete or merge rows, not those that move rows elsewhere."""
        bare = _blanked(self.full)
        begin = _TTL.search(bare)
        if begin is None:
            return
        end = bare.rfind(" SETTINGS ", begin.end())
        for rule in _items(self.full[begin.end() : None if end < 0 else end]):
            if not _KEEPS.search(_blanked(rule)):
                yield rule.strip()


def has_ttl(create: str, column: str) -> bool:
    """Return whether a column's own definition has a TTL, which empties the column.

    Args:
        create: system.tables.create_table_query.
        column: the column's name.
    """
    at = create.find(f"`{column}` ")
    return at >= 0 and _TTL.search(_blanked(next(_items(create[at:])))) is not None


def _items(text: str) -> Iterator[str]:
    """The items of a list that begins here, up to a bracket that ends it."""
    depth, first = 0, 0
    for at, sign in enumerate(_blanked(text)):
        if depth == 0 and sign in ",)":
            yield text[first:at]
            first = at + 1
            if sign == ")":
                return
        depth += (sign == "(") - (sign == ")")
    yield text[first:]


def _blanked(sql: str) -> str:
    """The same text, of the same length, with nothing in its strings and quoted names."""
    return _TEXT.sub(lambda match: "x" * len(match[0]), sql)
