"""Is a block surely inside its table's deduplication window? Pure, from system tables.

Receives a table's engine and settings; gives the window in parts and the margin that
may be used of it. Never asks the server itself: loader.tables does.

A part counter stands for "inserts since": ClickHouse numbers every inserted part, so
counter now - counter before the claim >= parts inserted in between, of anybody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_MERGE_TREE = re.compile(r"(Replicated|Shared)?[A-Za-z]*MergeTree")


@dataclass(frozen=True, slots=True)
class Window:
    """How far back a table remembers tokens.

    Attributes:
        parts: tokens remembered; 0: none, an INSERT under the same token doubles the rows.
        seconds: tokens older than this may be forgotten too; None: age does not matter.
        counter: the part counter is "global" (one for the table: MergeTree), "partitions"
            (one in each partition: Replicated*, to be summed) or "none" (another engine).
        countable: whether a row once inserted is a row for ever. ReplacingMergeTree and its
            like merge rows away, already while inserting; Distributed shows them late.
    """

    parts: int
    seconds: int | None
    counter: str
    countable: bool

    def margin(self, oldest_claim_seconds: float) -> int:
        """Parts that may follow an insert while its token is surely remembered; -1: never.

        Half the window: a condition of the design is that no more than the other half is
        inserted by others while our own INSERT runs. Half the time for the same reason.
        """
        if self.counter == "none":
            return -1
        if self.seconds is not None and oldest_claim_seconds > self.seconds / 2:
            return -1
        return self.parts // 2


def window(engine: str, engine_full: str, defaults: Mapping[str, int]) -> Window:
    """The window of a table.

    Args:
        engine: system.tables.engine.
        engine_full: system.tables.engine_full; its SETTINGS override the server's.
        defaults: `*_deduplication_window*` of the server's MergeTree settings.
    """
    match = _MERGE_TREE.fullmatch(engine)
    if match is None:
        return Window(0, None, "none", countable=False)

    countable = engine.removeprefix(match[1] or "") == "MergeTree"

    def setting(name: str) -> int:
        own = re.search(rf"\b{name} = (\d+)", engine_full.rpartition(" SETTINGS ")[2])
        return int(own[1]) if own else defaults.get(name, 0)

    if match[1]:
        return Window(
            setting("replicated_deduplication_window"),
            setting("replicated_deduplication_window_seconds"),
            "partitions",
            countable,
        )
    return Window(setting("non_replicated_deduplication_window"), None, "global", countable)
