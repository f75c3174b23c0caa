"""What was sealed of one source partition and still counts; pure.

Receives journal records in order, gives live stretches with their blocks, less what rewinds
superseded since, and the oldest offset that one can go back to.
"""

# pure

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relay.blocks.journal import renames_offsets
from relay.records_pb2 import Block, Commit


@dataclass(frozen=True, slots=True)
class Stretch:
    """Messages of one table that were sealed together: a block, dead letters or both.

    Attributes:
        first, next: source offsets of the buffer, half-open.
        block: None where all of them became dead letters.
    """

    table: str
    first: int
    next: int
    block: Block | None
    dead: int


class Seals:
    """One source partition.

    Args:
        beyond: stretches that end at or before this offset are not kept.

    Attributes:
        head: the last record; None before the first.
        offset: of it, in the journal.
        base: no message before it can be told to be in one block and no other: records were
            deleted, or its offset named another message once.
        superseded: by the rewind that is the head, as long as it is.
    """

    def __init__(self, beyond: int) -> None:
        self.beyond = beyond
        self._live: dict[str, list[Stretch]] = {}
        self._latest: dict[str, int] = {}
        self.head: Commit | None = None
        self.offset = -1
        self.base = 0
        self.superseded: tuple[Stretch, ...] = ()

    def add(self, offset: int, commit: Commit) -> None:
        """Add the next visible record."""
        if self.head is None and commit.n != 1:
            marks = [mark.offset for mark in commit.marks]
            self.base = max([commit.floor, *marks])
        self.head, self.offset, self.superseded = commit, offset, ()
        if renames_offsets(commit.accept):
            self._live, self._latest, self.base = {}, {}, commit.floor
        if commit.HasField("rewind"):
            self.superseded = tuple(self._supersede(commit))
        for one in stretches(commit):
            self._latest[one.table] = max(one.next, self._latest.get(one.table, 0))
            if one.next > self.beyond:
                self._live.setdefault(one.table, []).append(one)

    def live(self, table: str) -> list[Stretch]:
        """Return those of a table that count, by offset."""
        return self._live.get(table, [])

    def tables(self, beyond: int) -> list[str]:
        """Return all that ever had a message sealed at or after this offset."""
        return sorted(table for table, latest in self._latest.items() if latest > beyond)

    def _supersede(self, commit: Commit) -> Iterator[Stretch]:
        for start in commit.rewind.starts:
            stretches_of = self._live.get(start.table, [])
            yield from (one for one in stretches_of if one.first >= start.offset)
            self._live[start.table] = [one for one in stretches_of if one.first < start.offset]


def stretches(commit: Commit) -> Iterator[Stretch]:
    """Yield what one record seals."""
    blocks = {(b.table, b.first_source_offset, b.next_source_offset): b for b in commit.blocks}
    dead = {(d.table, d.first_source_offset, d.next_source_offset): d for d in commit.dead}
    for place in dict.fromkeys([*blocks, *dead]):
        letters = dead[place].messages if place in dead else 0
        yield Stretch(*place, blocks.get(place), letters)
