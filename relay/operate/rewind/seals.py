"""What was sealed of one source partition and still counts; pure.

Receives journal records in order, gives live stretches with their blocks, less what rewinds
superseded since, those rewinds, and the oldest offset that one can go back to.
"""

# pure

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

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


@dataclass(frozen=True, slots=True)
class RecordedRewind:
    """A rewind that the journal has.

    Attributes:
        partition: of the source, and of the journal.
        offset: of its record, in the journal.
        record: as it was written.
        blocks: that it superseded, as far as seals were kept.
        first_epoch: blocks of the epochs from this one on name messages by the same offsets as the
            rewind, and no earlier rewind kept their rows; of those before it nobody knows that.
        whole: the journal still has the records of all blocks that it superseded.
    """

    partition: int
    offset: int
    record: Commit
    blocks: tuple[Block, ...]
    first_epoch: int
    whole: bool

    @property
    def begins(self) -> int:
        """The least source offset from which it superseded anything."""
        return min((start.offset for start in self.record.rewind.starts), default=0)


class Seals:
    """One source partition.

    Args:
        beyond: stretches that end at or before this offset are not kept.

    Attributes:
        head: the last record; None before the first.
        offset: of it, in the journal.
        base: no message before it can be told to be in one block and no other: records were
            deleted, or its offset named another message once.
        rewinds: all of them, in order; the last has not ended where its record is the head.
    """

    def __init__(self, beyond: int) -> None:
        self.beyond = beyond
        self._live: dict[str, list[Stretch]] = {}
        self._latest: dict[str, int] = {}
        self.head: Commit | None = None
        self.offset = -1
        self.base = 0
        self.rewinds: list[RecordedRewind] = []
        self._first_epoch = 0

    def add(self, offset: int, commit: Commit) -> None:
        """Add the next visible record."""
        if self.head is None:
            self._first_epoch = commit.epoch
            if commit.n != 1:
                marks = [mark.offset for mark in commit.marks]
                self.base = max([commit.floor, *marks])
        self.head, self.offset = commit, offset
        if renames_offsets(commit.accept):
            self._live, self._latest, self.base = {}, {}, commit.floor
            self._first_epoch = commit.epoch
        if commit.HasField("rewind"):
            self.rewinds.append(self._rewound(offset, commit))
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

    def ended(self) -> list[RecordedRewind]:
        """Return the rewinds behind which relays have gone on."""
        return [one for one in self.rewinds if one.offset < self.offset]

    def begun(self) -> RecordedRewind | None:
        """Return the rewind that has not ended; None: there is none."""
        return next((one for one in self.rewinds if one.offset == self.offset), None)

    def _rewound(self, offset: int, commit: Commit) -> RecordedRewind:
        stretches_of = self._supersede(commit)
        blocks = tuple(one.block for one in stretches_of if one.block is not None)
        found = RecordedRewind(
            commit.partition, offset, commit, blocks, self._first_epoch, whole=True
        )
        if commit.rewind.kept:
            self._first_epoch = commit.epoch
        return found if found.begins >= self.base else replace(found, whole=False)

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
