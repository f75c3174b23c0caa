"""What a table's engine and settings say of its rows and tokens; pure, from system tables.

Receives engine, settings, keys and views; gives how far back the table surely remembers
a deduplication token, and why the number of its rows may not tell what was inserted. Never asks
the server itself: loader.clickhouse.tables does.

An insert counter stands for "inserts since". A MergeTree numbers every inserted part; of a
Replicated table the replication log, which is in Keeper and so the same for all replicas, has an
entry for each. So counter now - counter before the claim >= parts inserted in between, of
anybody. A MergeTree's counter goes back when the newest parts are dropped, of which the counter
itself shows nothing if the table is partitioned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from relay.clickhouse.table_engine import TableEngine, has_ttl
from relay.clickhouse.table_keys import TableKeys

_VERSIONED = re.compile(
    # Replicated: path and replica come first, as texts; a version is a column's name. With a second
    # column, is_deleted, a merge may remove a key, and an older row of it would come back.
    r"(?:Replicated|Shared)?ReplacingMergeTree\((?:'[^']*', '[^']*', )?"
    r"(?:[A-Za-z_]\w*|`[^`]+`)\)"
)
_PATCHED = ("enable_block_number_column", "enable_block_offset_column")
"""A table that has both takes lightweight updates."""
_CLEANS_UP = "allow_experimental_replacing_merge_with_cleanup"
"""Lets a merge take away rows that are marked as deleted, and the mark with them."""

DEFAULTS = (
    "non_replicated_deduplication_window",
    "replicated_deduplication_window",
    "replicated_deduplication_window_seconds",
    *_PATCHED,
    _CLEANS_UP,
)
"""MergeTree settings that decide, which a table may leave to the server."""
_KEEPS_ROWS = frozenset(
    {"EmbeddedRocksDB", "Join", "Log", "Memory", "Null", "Set", "StripeLog", "TinyLog"}
)
"""Engines that are no MergeTree and give their rows to no other table."""
_NO_KEYS = TableKeys()

Counter = Literal["parts", "log", "none"]


@dataclass(frozen=True, slots=True)
class Window:
    """How far back a table remembers tokens.

    Attributes:
        parts: tokens remembered; 0: none, an INSERT under the same token doubles the rows.
        seconds: tokens older than this may be forgotten too; None: age does not matter.
        counter: the insert counter is "parts" (MergeTree: the greatest block number), "log"
            (Replicated*: the newest entry of the replication log) or "none" (other engines).
    """

    parts: int
    seconds: int | None
    counter: Counter

    def margin(self, oldest_claim_seconds: float) -> int:
        """Return how many parts may follow an INSERT with its token surely remembered; -1: none.

        Half the window: a condition of the design is that no more than the other half is
        inserted by others while our own INSERT runs. Half the time for the same reason.
        """
        if self.counter == "none":
            return -1
        if self.seconds is not None and oldest_claim_seconds > self.seconds / 2:
            return -1
        return self.parts // 2

    def counter_before(self, seen: int, sent: Iterable[str]) -> int:
        """Return the insert counter before a block's oldest claim; -1: it is not known.

        Args:
            seen: by the claims, the least.
            sent: how the INSERT of each claim is sent (loader.core.plan). "": it is of an earlier
                version of the program, which did not say, and had another counter of Replicated
                tables: the sum of the newest block numbers of all partitions.
        """
        return -1 if self.counter == "log" and "" in sent else seen


@dataclass(frozen=True, slots=True)
class Nature:
    """What becomes of rows once they are inserted, apart from what people do to them.

    Attributes:
        window: of deduplication tokens.
        partitioned: whether one INSERT may become several parts, each a step of its own.
        vanish: why rows that were inserted may be fewer later; "": they stay as they are.
        views: materialized views behind the table.
        repeatable: whether the same messages inserted again change nothing in the end, as long
            as nobody removes rows.
        patched: whether rows may be updated or deleted without a mutation that tells of it.
        forwards: whether rows go to other tables, as those of a Distributed one do, of which
            nothing is known here: they may be replicated.
        expires: whether rows go by a TTL.
        cancels: whether rows may take each other away, and nothing is left of them: a pair of
            opposite sign, sums of zero, a row and its deletion. A part that the server empties so,
            or by a TTL, goes within a minute, whatever old_parts_lifetime is, and its token with
            it; the insert counter goes back if it was the newest.
    """

    window: Window
    partitioned: bool = False
    vanish: str = ""
    views: tuple[str, ...] = ()
    repeatable: bool = False
    patched: bool = False
    forwards: bool = False
    expires: bool = False
    cancels: bool = False

    @property
    def one_step(self) -> bool:
        """Return whether an INSERT lands as a whole or not at all, apart from views."""
        return self.window.counter != "none" and not self.partitioned

    def hides_an_insert(self, margin: int, *, logged: bool) -> bool:
        """Return whether rows may have come and gone that a repeat would bring again.

        Then a table into which nobody seems to have inserted anything is not untouched for sure.
        What has expired does so again; a view behind the table takes its rows again. `margin`:
        parts that may follow an INSERT while all tables behind remember its token; `logged`: by a
        part log, and not by an insert counter alone, which may have gone back.
        """
        if self.window.counter == "parts" and not logged and self.forgets(None):
            return True
        return self.loses_parts(logged=logged) and bool(self.views) and margin < 1

    def loses_parts(self, *, logged: bool) -> bool:
        """Return whether an INSERT of which nothing is seen may have finished, views and all.

        Rows that cancel each other within one INSERT make no part at all (optimize_on_insert, the
        server's default), and so no entry in a log. A view gets them all the same. `logged`: as of
        `hides_an_insert`.
        """
        return self.cancels or (self.expires and not logged)

    def forgets(self, emptied: int | None) -> bool:
        """Return whether tokens may have gone with a part whose rows would not go again.

        A token goes with its part when nothing is left of the rows in it, be it by those of others.
        `emptied`: merges since the claim of which nothing was left; None: not known.
        """
        if emptied is None:
            return self.cancels or self.patched
        return emptied > 0 and (self.cancels or not self.expires)

    @property
    def is_countable(self) -> bool:
        """Return whether counting rows decides about a block, however old its INSERT is.

        On one server, where every running INSERT is seen, and where an INSERT is one step.
        """
        plain = self.window.counter == "parts" and self.one_step
        return plain and not self.vanish and not self.views


def nature(
    engine: str,
    engine_full: str,
    defaults: Mapping[str, int],
    keys: TableKeys = _NO_KEYS,
    views: tuple[str, ...] = (),
    emptied: str = "",
) -> Nature:
    """Return the nature of a table.

    Args:
        engine: system.tables.engine.
        engine_full: system.tables.engine_full; its SETTINGS override the server's.
        defaults: those of DEFAULTS in the server's MergeTree settings.
        keys: of the table.
        views: materialized views that read what is inserted.
        emptied: why rows lose the id of their block; "": they keep it.
    """
    table = TableEngine(engine, engine_full)
    expiry = ", ".join(table.deleting_ttls())
    vanish = _vanish(table) or (f"rows expire (TTL {expiry})" if expiry else emptied)
    return Nature(
        window(table, defaults),
        keys.partition != "",
        vanish,
        views,
        # A view behind it would take the rows twice. A row that replaced another may expire first.
        # A key that the server makes anew is another row's; a later version wins over what came
        # in between.
        repeatable=_VERSIONED.match(engine_full) is not None
        and not (views or expiry or keys.vary(table.version)),
        patched=all(table.setting(name, defaults) for name in _PATCHED),
        forwards=not table.is_merge_tree and engine not in _KEEPS_ROWS,
        expires=expiry != "",
        cancels=_cancels(table, defaults),
    )


def emptied(create: str, column: str) -> str:
    """Return why rows lose what they have in a column; "": they keep it.

    `create`: system.tables.create_table_query.
    """
    return f"column {column} has a TTL" if has_ttl(create, column) else ""


def window(engine: TableEngine, defaults: Mapping[str, int]) -> Window:
    """Return the deduplication window of a table; `defaults` as of `nature`."""
    if (remembered := engine.window(defaults)) is None:
        return Window(0, None, "none")
    counter: Counter = "log" if engine.is_replicated else "parts"
    return Window(remembered.parts, remembered.seconds, counter)


def _cancels(engine: TableEngine, defaults: Mapping[str, int]) -> bool:
    marks = ", " in engine.version  # is_deleted
    cleans_up = marks and engine.setting(_CLEANS_UP, defaults) > 0
    return cleans_up or engine.merging == "Summing" or "Collapsing" in engine.merging


def _vanish(engine: TableEngine) -> str:
    if not engine.is_merge_tree:
        return f"engine {engine.name} does not keep rows as they were inserted"
    return f"engine {engine.name} merges rows into others" if engine.merges_rows else ""
