"""What was sealed of one source partition and still counts, by the journal's records; pure.

Also the rewinds that superseded what does not, and the oldest offset that one can go back to.
"""

# pure

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from relay.blocks.journal import carried_out, renames_offsets, rewind_starts
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
        record: as it was written, or carried out.
        before: the record before it; None: it was deleted.
        stretches: that it superseded, as far as seals were kept.
        first_epochs: by table that it began anew. Blocks of the epochs from this one on name
            messages by the same offsets as the rewind, and no earlier rewind kept their rows; of
            those before it nobody knows that.
        whole: the journal still has the records of all blocks that it superseded.
    """

    partition: int
    offset: int
    record: Commit
    before: Commit | None
    stretches: tuple[Stretch, ...]
    first_epochs: Mapping[str, int]
    whole: bool

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Those of the stretches."""
        return tuple(stretch.block for stretch in self.stretches if stretch.block is not None)

    @property
    def starts(self) -> dict[str, int]:
        """The source offsets from which it superseded anything, by table."""
        return rewind_starts(self.record)

    @property
    def begins(self) -> int:
        """The least source offset from which it superseded anything."""
        return min(self.starts.values(), default=0)

    def ended(self, end: Commit) -> RecordedRewind:
        """Return it as it was carried out, by the record that ends it."""
        done = replace(self, record=carried_out(self.record, end))
        starts = done.starts
        superseded = tuple(s for s in self.stretches if s.first >= starts[s.table])
        return replace(done, stretches=superseded)


class Seals:
    """One source partition.

    Attributes:
        beyond: stretches that end at or before this offset are not kept.
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
        self._kept_before: dict[str, int] = {}  # by table, the epoch of the last such rewind

    def add(self, offset: int, commit: Commit) -> None:
        """Add the next visible record."""
        before, begun = self.head, self.begun()
        if before is None:
            # A rewind begins an epoch, and what it superseded is of the one before at least.
            self._first_epoch = commit.epoch - commit.HasField("rewind")
            if commit.n != 1:
                self.base = _sealed_up_to(commit)
        self.head, self.offset = commit, offset
        if renames_offsets(commit.accept):
            self._live, self._latest, self.base = {}, {}, _sealed_up_to(commit)
            self._first_epoch, self._kept_before = commit.epoch, {}
        if commit.HasField("rewind"):
            self.rewinds.append(self._rewound(offset, commit, before))
        if commit.rewound and begun is not None:
            self._end(begun, commit)
        for stretch in stretches(commit):
            table = stretch.table
            self._latest[table] = max(stretch.next, self._latest.get(table, 0))
            if stretch.next > self.beyond:
                self._live.setdefault(table, []).append(stretch)

    def live(self, table: str) -> list[Stretch]:
        """Return those of a table that count, by offset."""
        return self._live.get(table, [])

    def tables(self, beyond: int) -> list[str]:
        """Return all that ever had a message sealed at or after this offset."""
        return sorted(table for table, latest in self._latest.items() if latest > beyond)

    def ended(self) -> list[RecordedRewind]:
        """Return the rewinds behind which relays have gone on."""
        return [rewind for rewind in self.rewinds if rewind.offset < self.offset]

    def begun(self) -> RecordedRewind | None:
        """Return the rewind that has not ended; None: there is none."""
        return next((rewind for rewind in self.rewinds if rewind.offset == self.offset), None)

    def _rewound(self, offset: int, commit: Commit, before: Commit | None) -> RecordedRewind:
        superseded, starts = tuple(self._supersede(commit)), rewind_starts(commit)
        first = {table: self._kept_before.get(table, self._first_epoch) for table in starts}
        self._kept_before.update(dict.fromkeys(commit.rewind.kept, commit.epoch))
        whole = before is not None and min(starts.values(), default=0) >= self.base
        return RecordedRewind(commit.partition, offset, commit, before, superseded, first, whole)

    def _end(self, begun: RecordedRewind, end: Commit) -> None:
        """What the rewind left as it was counts again."""
        ended = self.rewinds[-1] = begun.ended(end)
        starts = ended.starts
        for stretch in begun.stretches:
            if stretch.first < starts[stretch.table]:
                self._live.setdefault(stretch.table, []).append(stretch)

    def _supersede(self, commit: Commit) -> Iterator[Stretch]:
        for start in commit.rewind.starts:
            live = self.live(start.table)
            yield from (stretch for stretch in live if stretch.first >= start.offset)
            self._live[start.table] = [stretch for stretch in live if stretch.first < start.offset]


def _sealed_up_to(commit: Commit) -> int:
    """The offset from which the records behind this one name the block of every message."""
    return max([commit.floor, *(mark.offset for mark in commit.marks)])


def stretches(commit: Commit) -> Iterator[Stretch]:
    """Yield what one record seals."""
    blocks = {(b.table, b.first_source_offset, b.next_source_offset): b for b in commit.blocks}
    dead = {(d.table, d.first_source_offset, d.next_source_offset): d for d in commit.dead}
    for key in dict.fromkeys([*blocks, *dead]):
        yield Stretch(*key, blocks.get(key), dead[key].messages if key in dead else 0)
