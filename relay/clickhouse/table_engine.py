"""Read what a table's definition says of its rows: its engine, its TTLs, its settings; pure.

Receives `engine`, `engine_full` and `create_table_query` (`create`) of system.tables; gives the
window of deduplication tokens, whether rows are merged, which rows expire, the columns, and where a
materialized view writes. The loader, which decides by it, the verifier, which judges by it, and the
doctor, which warns, read it here.
"""

# pure

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from relay.clickhouse.quoting import quoted, unquoted

LISTED_HERE = (
    "database NOT IN (SELECT name FROM system.databases WHERE engine IN "
    "('MySQL', 'PostgreSQL', 'SQLite', 'Remote', 'RemoteSecure', 'DataLakeCatalog'))"
)
"""SQL about a row of system.tables or system.columns: no other server has to be asked for it.

ClickHouse asks one for the tables of a database that a question does not exclude by its name alone,
and gives no answer at all while that server is away.
"""
_MERGE_TREE = re.compile(r"(Replicated|Shared)?([A-Za-z]*)MergeTree")
_TEXT = re.compile(r"'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`")
_HEAD = re.compile(r"\w+\(((?:[^()'`]|'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`)*)\)")
"""The engine's own arguments: names of columns and, of Replicated tables, two texts."""
_TTL = re.compile(r"\sTTL\s")
_NAME = re.compile(r"`(?:[^`\\]|\\.)*`")
_VALUE = r"'?\+?(?i:(?P<number>\d+)(?P<size>[KMGT])?(?P<binary>i)?|(?P<word>true|false))"
"""Of a setting, as the table's owner wrote it: ClickHouse keeps `true`, `'1000'` and `'10Ki'`."""
_KEEPS = re.compile(r"\b(?:TO\s+(?:DISK|VOLUME)|RECOMPRESS)\b", re.IGNORECASE)
"""What a TTL may do to rows instead of deleting them."""
_PART = r"(?:`(?:[^`\\]|\\.)+`|\w+)"
_TO = re.compile(rf"\sTO\s+({_PART})\.({_PART})")
_VIEW_HEAD = re.compile(rf"CREATE MATERIALIZED VIEW\s+{_PART}\.{_PART}")

KEPT_SETTING = "finished_mutations_to_keep"
_KEPT = 100
"""By ClickHouse's default."""


class DeduplicationWindow(NamedTuple):
    """How far back a table remembers tokens: so many parts, so many seconds (None: any age)."""

    setting: str
    parts: int
    seconds: int | None


@dataclass(frozen=True, slots=True)
class TableEngine:
    """A table's system.tables.engine and engine_full, which has the clauses behind the engine."""

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

    @property
    def version(self) -> str:
        """The version column of a ReplacingMergeTree, as SQL; "": none, or another engine.

        With is_deleted, where it has that: `ver, is_deleted`.
        """
        head = _HEAD.match(self.full) if self.merging == "Replacing" else None
        if head is None:
            return ""
        return _TEXT.sub(lambda m: m[0] if m[0][0] == "`" else "", head[1]).strip(" ,")

    def setting(self, name: str, defaults: Mapping[str, int | str]) -> int:
        """Return a setting: the table's own, else the server's, else 0."""
        own = re.search(rf"\b{name} = {_VALUE}", self.full.rpartition(" SETTINGS ")[2])
        if own is None:
            return int(defaults.get(name, 0))
        if own["word"]:
            return int(own["word"].lower() == "true")
        base = 1024 if own["binary"] else 1000
        return int(own["number"]) * int(base ** " KMGT".index((own["size"] or " ").upper()))

    def window(self, defaults: Mapping[str, int | str]) -> DeduplicationWindow | None:
        """Return the deduplication window; None where the engine has none.

        The defaults are the server's MergeTree settings of tables that are, or are not, replicated.
        """
        if not self.is_merge_tree:
            return None
        name = f"{'' if self.is_replicated else 'non_'}replicated_deduplication_window"
        seconds = self.setting(f"{name}_seconds", defaults) if self.is_replicated else None
        return DeduplicationWindow(name, self.setting(name, defaults), seconds)

    def kept_mutations(self, default: str = "") -> int:
        """Return how many finished mutations the server shows at most; 0: all of them.

        The default is the server's setting; empty: it does not say.
        """
        return self.setting(KEPT_SETTING, {KEPT_SETTING: default or _KEPT})

    def deleting_ttls(self) -> Iterator[str]:
        """Yield the TTL rules that delete or merge rows, not those that move rows elsewhere."""
        bare = _blanked(self.full)
        begin = _TTL.search(bare)
        if begin is None:
            return
        end = bare.rfind(" SETTINGS ", begin.end())
        for rule in split_items(self.full[begin.end() : None if end < 0 else end]):
            if deletes_rows(rule):
                yield rule.strip()

    @property
    def ttl_only_moves(self) -> bool:
        """Whether it has a TTL, which deletes no rows."""
        return _TTL.search(_blanked(self.full)) is not None and not any(self.deleting_ttls())


def deletes_rows(rule: str) -> bool:
    """Return whether a rule of a TTL deletes or merges rows, and does not move them elsewhere."""
    return _KEEPS.search(_blanked(rule)) is None


def has_ttl(create: str, column: str) -> bool:
    """Return whether a column's own definition has a TTL, which empties the column."""
    begin = create.find(f"{quoted(column)} ")
    return begin >= 0 and _TTL.search(_blanked(next(split_items(create[begin:])))) is not None


@lru_cache(2_048)  # a loader looks every few seconds at definitions that seldom change
def columns_of(create: str) -> frozenset[str]:
    """Return the names of all columns that a definition has; none where it is not shown."""
    begin = _blanked(create).find("(")
    items = split_items(create[begin + 1 :]) if begin >= 0 else ()
    matches = (_NAME.match(item.lstrip()) for item in items)  # an index or a constraint has none
    return frozenset(unquoted(match[0]) for match in matches if match)


def view_target(database: str, name: str, uuid: str, create: str) -> tuple[str, str]:
    """Return database and name of the table after TO, or of the view's own, named after it.

    The view's UUID is empty, or of zeros, where its database gives none.
    """
    head = _VIEW_HEAD.match(create)
    to = None if head is None else _TO.match(create, head.end())
    if to is not None:
        return unquoted(to[1]), unquoted(to[2])
    if uuid.strip("0-"):
        return database, f".inner_id.{uuid}"
    return database, f".inner.{name}"


def split_items(text: str) -> Iterator[str]:
    """Yield the items of a list that begins here, up to a bracket that ends it."""
    depth, first = 0, 0
    for at, sign in enumerate(_blanked(text)):
        if depth == 0 and sign in ",)":
            yield text[first:at]
            first = at + 1
            if sign == ")":
                return
        depth += (sign in "([") - (sign in ")]")
    yield text[first:]


def _blanked(sql: str) -> str:
    """The same text, of the same length, with nothing in its strings and quoted names."""
    return _TEXT.sub(lambda match: "x" * len(match[0]), sql)
