"""What the journal said, record by record, as far as the screen needs it.

Pure: the time of now is an argument.
"""

# pure

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from relay.records_pb2 import Block, Commit
from relay.schema.dead_reason import DeadKind

WINDOW_SECONDS = 60
"""Of the rates."""


class Listed(NamedTuple):
    """A sealed block, and the journal record that lists it."""

    block: Block
    partition: int
    offset: int
    """Of the record in the journal."""
    commit: Commit


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The last record of a source partition.

    Attributes:
        held_since_ms: when the first of the records was written, of those read, that have this
            floor and a position beyond it; a buffer that begins at the floor is at least as old.
    """

    n: int
    epoch: int
    floor: int
    position: int
    member: str
    offset: int
    written_at_ms: int
    held_since_ms: int


@dataclass(frozen=True, slots=True)
class Lately:
    """Committed in the last WINDOW_SECONDS, by the relays' clocks."""

    messages: int
    rows: int
    blocks: int
    dead_letters: int
    rows_by_table: Mapping[str, int]


class JournalState:
    """All records read so far."""

    def __init__(self) -> None:
        self.heads: dict[int, PartitionState] = {}
        self.open: dict[str, Listed] = {}
        """By block id: blocks of which nobody has said yet that they are loaded."""
        self.dead: Counter[tuple[str, DeadKind]] = Counter()
        """Messages by table and kind of the first reason of each seal: others may hide behind."""
        self.reasons: dict[tuple[str, DeadKind], str] = {}
        """Of these: the first reason of the last seal."""
        self.exact: dict[tuple[str, DeadKind], bool] = {}
        """Of these: whether all are of this kind, as no seal had more than one."""
        self.tables: set[str] = set()
        self.first_ms = 0
        """When the oldest record read was written; 0 where none was."""
        self._seconds: dict[int, Counter[tuple[str, str]]] = {}

    def add(self, partition: int, offset: int, commit: Commit) -> None:
        """Add the next record of a journal partition."""
        now_ms = held_since_ms = commit.written_at_ms
        before = self.heads.get(partition)
        if before is not None and before.floor == commit.floor < before.position:
            held_since_ms = before.held_since_ms
        self.heads[partition] = PartitionState(
            commit.n,
            commit.epoch,
            commit.floor,
            commit.position,
            commit.member,
            offset,
            now_ms,
            held_since_ms,
        )
        self.first_ms = min(self.first_ms or now_ms, now_ms)
        second = self._seconds.setdefault(now_ms // 1000, Counter())
        for block in commit.blocks:
            self.open[block.id] = Listed(block, partition, offset, commit)
            self.tables.add(block.table)
            second["messages", ""] += block.messages
            second["rows", block.table] += block.rows
            second["blocks", ""] += 1
        for dead in commit.dead:
            key = (dead.table, DeadKind.read(dead.kind))
            self.dead[key] += dead.messages
            self.reasons[key] = dead.reason
            self.exact[key] = self.exact.get(key, True) and dead.messages == 1
            second["messages", ""] += dead.messages
            second["dead", ""] += dead.messages

    def settle(self, positions: Mapping[int, int], loaded: Collection[str]) -> None:
        """Forget these loaded blocks, by id, and all before these journal offsets, by partition.

        Those are loaded, parked or discarded.
        """
        gone = set(loaded)
        self.open = {
            name: entry
            for name, entry in self.open.items()
            if name not in gone and entry.offset >= positions.get(entry.partition, 0)
        }

    def lately(self, now_ms: int) -> Lately:
        """Return what was committed in the WINDOW_SECONDS before now; forgets what is older."""
        oldest = now_ms // 1000 - WINDOW_SECONDS
        self._seconds = {second: n for second, n in self._seconds.items() if second > oldest}
        total: Counter[tuple[str, str]] = Counter()
        for count in self._seconds.values():
            total.update(count)
        rows = {table: n for (what, table), n in total.items() if what == "rows"}
        messages, blocks, dead = (total[what, ""] for what in ("messages", "blocks", "dead"))
        return Lately(messages, sum(rows.values()), blocks, dead, rows)
