"""Plans what a rewind of one source partition changes; pure.

A block is re-run whole or not at all. So a table starts where one of its blocks began: the one
that holds the offset, or the next where that one's first messages are gone. What is not re-run
keeps its blocks: its mark says how far they reach.
"""

# pure

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from relay.core.offsets import CommittedOffset
from relay.core.takeover import OTHER_TOPIC, other_topic
from relay.errors import NEW_APP, ConfigError, ContractBroken, ErrorPage
from relay.operate.rewind.seals import RecordedRewind, Seals, Stretch
from relay.records_pb2 import Block, Commit, Mark

ACCEPT = "`relay accept CONFIG` shows how to continue from there; rewind after that"
RESTORE = f"restore what was deleted, or {NEW_APP}"
BEYOND_ALL = 2**63 - 1
"""No message has an offset as high as this."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PartitionPositions:
    """One source partition as it was found.

    Attributes:
        named: the group's offset and its metadata; None: it has none.
        seals: its journal, all that is retained.
        topic_id: of the source topic now.
        log_start, log_end: of the source partition; the end is stable.
        lost_end: where the log ends for the leader epoch that is committed with the floor, if that
            is before what was read under it; negative: the leader does not know that epoch; None:
            it is not, or no epoch is committed.
        topic: the source topic's name, as it is set now.
        journal_start: first offset of its journal; all before it was deleted.
    """

    partition: int
    named: tuple[int, str | None] | None
    seals: Seals
    topic_id: str
    log_start: int
    log_end: int
    lost_end: int | None = None
    topic: str = ""
    journal_start: int = 0

    @property
    def head(self) -> Commit:
        """The last journal record, where there is one."""
        assert self.seals.head is not None
        return self.seals.head

    @property
    def committed(self) -> CommittedOffset | None:
        """The group's offset as a relay wrote it; None: it has none, or a tool wrote it."""
        return None if self.named is None else CommittedOffset.parse(*self.named)

    @property
    def reached(self) -> int:
        """The offset behind the last message that is in a block."""
        return max([self.head.floor, *(mark.offset for mark in self.head.marks)])

    @property
    def new_from(self) -> int | None:
        """Where the log's messages are others than those that were read; None: it lost no end.

        Without a leader epoch only a log that has not grown again beyond what was read shows it.
        """
        end = self.log_end
        if self.lost_end is not None and self.lost_end >= 0:
            end = min(self.lost_end, end)
        return max(end, self.log_start) if end < self.reached else None

    @property
    def is_unproved(self) -> bool:
        """Return whether the leader cannot say if the log is still the one that was read.

        Once retention has passed all that was read, it does not matter.
        """
        unknown = self.lost_end is not None and self.lost_end < 0
        return unknown and self.new_from is None and self.reached >= self.log_start

    def refuse(self, why: str, next_step: str = ACCEPT) -> RewindRefusal:
        """Return that nothing can be done here."""
        return RewindRefusal(self.partition, why, next_step)


@dataclass(frozen=True, slots=True)
class Course:
    """What becomes of one source partition.

    Attributes:
        floor: the new one; before: the one committed now.
        starts: by table that is re-run.
        marks: above the new floor, of all tables.
        superseded: stretches whose blocks do not count any more, by table and offset.
        kept: blocks that hold the wanted offset and stay, their first messages being gone.
    """

    partition: int
    epoch: int
    before: int
    floor: int
    starts: dict[str, int]
    marks: dict[str, int]
    superseded: tuple[Stretch, ...]
    kept: tuple[Stretch, ...] = ()

    @property
    def blocks(self) -> list[Block]:
        """Those that do not count any more."""
        return [stretch.block for stretch in self.superseded if stretch.block is not None]


@dataclass(frozen=True, slots=True)
class RewindEnding:
    """How a rewind that was begun ends.

    Attributes:
        rewind: as it is carried out.
        floor: relays go on from here; marks: of tables, above it.
        kept: blocks with rows, or to be loaded, that it was to replace and that count again.
        why: they count again; empty: the rewind is carried out as it was recorded.
    """

    rewind: RecordedRewind
    floor: int
    marks: Mapping[str, int]
    kept: tuple[Block, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """What a person takes note of in one source partition.

    Attributes:
        kinds: retention, topic, truncated, epoch, offsets.
        found: both values of each, for people.
        before: the floor committed now.
        floor: relays go on from here.
        marks: of tables, above the floor: what lies before them is in blocks.
        meaning: what that means for the rows.
    """

    partition: int
    kinds: tuple[str, ...]
    found: str
    before: int
    floor: int
    marks: Mapping[str, int]
    meaning: str


@dataclass(frozen=True, slots=True)
class RewindRefusal:
    """Why nothing can be rewound or accepted in a source partition, and what a person does."""

    partition: int
    why: str
    next_step: str


def course(
    place: PartitionPositions, offset: int, table: str | None = None
) -> Course | RewindRefusal | None:
    """Return the rewind of one partition, of this table alone or of all (None).

    Messages from `offset` on are read again; the partition's seals keep what lies beyond it.
    """
    if place.seals.head is None and place.named is None:
        return forgotten(place)  # None: never read
    refusal = disagreement(place) or _out_of_reach(place, offset)
    if refusal is not None:
        return refusal
    head, seals = place.head, place.seals
    oldest = max(place.log_start, seals.base)
    starts: dict[str, int] = {}
    superseded: list[Stretch] = []
    kept: list[Stretch] = []
    for name in seals.tables(offset) if table is None else [table]:
        wanted = [stretch for stretch in seals.live(name) if stretch.next > offset]
        again = [stretch for stretch in wanted if stretch.first >= oldest]
        kept += [stretch for stretch in wanted if stretch.first < oldest]
        if again:
            starts[name] = again[0].first
            superseded += again
    if not starts:
        return None
    floor = min(head.floor, *starts.values())
    done = {mark.table: mark.offset for mark in head.marks}
    marks = {name: done.get(name, head.floor) for name in {*seals.tables(floor), *done}} | starts
    return Course(
        place.partition,
        head.epoch + 1,
        head.floor,
        floor,
        starts,
        {name: mark for name, mark in sorted(marks.items()) if mark > floor},
        tuple(superseded),
        tuple(kept),
    )


def ending(
    place: PartitionPositions, removed: Collection[str] = ()
) -> RewindEnding | RewindRefusal:
    """Return how the rewind that the partition's last record begins is to end.

    Messages may have been deleted since. A block whose first message is gone counts again, as
    `course` leaves it: its rows could not be made anew. The last blocks of a table that are among
    `removed` (ids of blocks without rows, as of an attempt that was cut off) are replaced all the
    same, by those of their messages that are left.
    """
    begun, head = place.seals.begun(), place.head
    assert begun is not None
    if other := other_source(place):
        return other
    why, oldest = _gone_since(place, begun)
    marks = {mark.table: mark.offset for mark in head.marks}
    if not why:
        return RewindEnding(begun, head.floor, marks)
    before = begun.before
    if before is None:
        reason = f"{why}; and the journal no longer says where relays stood before the rewind"
        return place.refuse(reason, RESTORE)
    starts = {mark.table: mark.offset for mark in before.marks}
    starts = {table: starts.get(table, before.floor) for table in begun.starts}
    whole = set[str]()
    for stretch in reversed(begun.stretches):
        block = stretch.block
        if stretch.first < oldest and (block is None or block.id not in removed):
            whole.add(stretch.table)
        elif stretch.table not in whole:
            starts[stretch.table] = stretch.first
    floor = min(before.floor, *starts.values())
    marks = {name: mark for name, mark in (marks | starts).items() if mark > floor}
    ends = [Mark(table=name, offset=mark) for name, mark in marks.items()]
    rewind = begun.ended(Commit(floor=floor, marks=ends))
    without = {*removed, *(block.id for block in rewind.blocks)}
    kept = tuple(block for block in begun.blocks if block.id not in without)
    return RewindEnding(rewind, floor, marks, kept, why)


def _gone_since(place: PartitionPositions, begun: RecordedRewind) -> tuple[str, int]:
    """Why messages of a rewind cannot be read again ("": all can), and the first that can."""
    head = place.head
    if head.source_topic_id != place.topic_id:
        return "the source topic was deleted and created again", BEYOND_ALL
    before = begun.before
    marks = () if before is None else before.marks
    reached = max([head.previous_floor, *(mark.offset for mark in marks)])
    if place.log_end < reached:
        lost = f"the source log ends at {place.log_end}, but was read up to {reached}"
        return lost, BEYOND_ALL
    if begun.begins < place.log_start:
        lost = f"the source log starts at {place.log_start} by now"
        return lost, place.log_start if begun.whole else BEYOND_ALL
    return "", place.log_start


def at_head(place: PartitionPositions) -> bool:
    """Return whether the group's offset names the last journal record; or there is neither."""
    head, committed = place.seals.head, place.committed
    if head is None or committed is None:
        return head is None and place.named is None
    return committed == CommittedOffset(head.floor, head.n, place.seals.offset)


def disagreement(place: PartitionPositions) -> RewindRefusal | None:
    """Return whether a relay would stop here; then the truth has to be settled first."""
    if other := other_source(place):
        return other
    head, committed = place.seals.head, place.committed
    if head is None or committed is None:
        return place.refuse("the group's offset and the journal do not agree")
    if not at_head(place):
        return place.refuse(
            f"the group's offset names floor {committed.floor} (n={committed.n}), but the journal "
            f"ends at floor {head.floor} (n={head.n})"
        )
    if head.source_topic_id != place.topic_id:
        return place.refuse("the source topic was deleted and created again")
    if place.new_from is not None or place.is_unproved:
        return place.refuse(truncation(place))
    if head.floor < place.log_start:
        return place.refuse(
            f"floor {head.floor} is not in the source log, {place.log_start} to {place.log_end}"
        )
    return None


def forgotten(place: PartitionPositions) -> RewindRefusal | None:
    """Return that journal and offset are gone; None: there was none, as nobody has read here."""
    if place.seals.head is not None or place.named is not None or not place.journal_start:
        return None
    return place.refuse(
        "the group has no committed offset, and the journal has no record, as its first "
        f"{place.journal_start} offsets were deleted: nothing says which messages are in blocks",
        RESTORE,
    )


def other_source(place: PartitionPositions) -> RewindRefusal | None:
    """Return that source.topic names another topic than the journal is of."""
    head = place.seals.head
    if head is None:
        return None
    read = head.source_topic, head.source_topic_id
    why = other_topic(read, (place.topic, place.topic_id))
    return place.refuse(why, OTHER_TOPIC) if why else None


def truncation(place: PartitionPositions) -> str:
    """Return both values of a log that lost its end, or may have, for people."""
    head = place.head
    read = f"the floor in the journal is {head.floor}"
    last = max(head.marks, key=lambda mark: mark.offset, default=None)
    if last is not None and last.offset > head.floor:
        read = f"messages of {last.table!r} before offset {last.offset} are in blocks"
    if place.is_unproved:
        return (
            "the leader does not know the epoch that is committed with the floor, so it cannot say "
            f"whether messages before offset {place.reached} are those that were read: {read}"
        )
    if place.lost_end is None or not 0 <= place.lost_end < place.log_end:
        return f"the source log ends at {place.log_end}, {read}"
    return (
        f"the source log lost its end and has grown again to {place.log_end}: from offset "
        f"{place.new_from} on its messages are others than those that were read, {read}"
    )


def _out_of_reach(place: PartitionPositions, offset: int) -> RewindRefusal | None:
    if offset < place.log_start:
        return place.refuse(
            f"messages from {offset} to {place.log_start - 1} were deleted: a rewind would remove "
            "their rows and could not read them again",
            f"choose an offset from {place.log_start} on",
        )
    if offset < place.seals.base:
        return place.refuse(
            f"the journal no longer says which blocks hold the messages before {place.seals.base}",
            f"choose an offset from {place.seals.base} on",
        )
    return None


def check_refusals(decisions: Iterable[T | RewindRefusal | None]) -> list[T]:
    """Return what was decided, of those partitions where anything was.

    Raises:
        ContractBroken: a partition is refused because recorded and found state disagree.
        ConfigError: partitions are refused for what was asked of them. Each names all of them.
    """
    every = list(decisions)
    refusals = [decision for decision in every if isinstance(decision, RewindRefusal)]
    if not refusals:
        return [d for d in every if d is not None and not isinstance(d, RewindRefusal)]
    why = "\n  ".join(f"source partition {r.partition}: {r.why}" for r in refusals)
    steps = list(dict.fromkeys(refusal.next_step for refusal in refusals))
    kind = ContractBroken if {ACCEPT, RESTORE} & set(steps) else ConfigError
    raise kind(why, "; ".join(steps), page=ErrorPage.ACCEPT if kind is ContractBroken else "")
