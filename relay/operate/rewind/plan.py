"""Plans what a rewind of one source partition changes; pure.

Receives what the journal, the group and the source topic say, and the offset that is wanted;
gives a Course, None where there is nothing to re-run, or the reason why it must not be.

A block is re-run whole or not at all. So a table starts where one of its blocks began: the one
that holds the offset, or the next where that one's first messages are gone. What is not re-run
keeps its blocks: its mark says how far they reach.
"""

# pure

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relay.core.offsets import CommittedOffset
from relay.errors import ConfigError, ContractBroken, ErrorPage, RelayError
from relay.operate.rewind.seals import Seals, Stretch
from relay.records_pb2 import Block, Commit

ACCEPT = "`relay accept CONFIG` shows how to continue from there; rewind after that"
NEW_APP = "start under a new app name, or restore what was deleted"


@dataclass(frozen=True, slots=True)
class PartitionPositions:
    """One source partition as it was found.

    Attributes:
        named: the group's offset and its metadata; None: it has none.
        seals: its journal, all that is retained.
        topic_id: of the source topic now.
        log_start, log_end: of the source partition; the end is stable.
    """

    partition: int
    named: tuple[int, str | None] | None
    seals: Seals
    topic_id: str
    log_start: int
    log_end: int

    @property
    def head(self) -> Commit:
        """The last journal record, where there is one."""
        assert self.seals.head is not None
        return self.seals.head

    @property
    def committed(self) -> CommittedOffset | None:
        """The group's offset as a relay wrote it; None: it has none, or a tool wrote it."""
        return None if self.named is None else CommittedOffset.parse(*self.named)


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
        return [one.block for one in self.superseded if one.block is not None]


@dataclass(frozen=True, slots=True)
class RewindRefusal:
    """Why not."""

    partition: int
    why: str
    next_step: str = ACCEPT


def course(
    place: PartitionPositions, offset: int, table: str | None = None
) -> Course | RewindRefusal | None:
    """Return a rewind of one partition.

    Args:
        place: as it was found; its seals keep what lies beyond `offset`.
        offset: messages from here on are wanted again.
        table: only of this one; None: of all.
    """
    if place.seals.head is None and place.named is None:
        return None  # never read
    refusal = disagreement(place) or _out_of_reach(place, offset)
    if refusal is not None:
        return refusal
    head, seals = place.head, place.seals
    oldest = max(place.log_start, seals.base)
    starts: dict[str, int] = {}
    superseded: list[Stretch] = []
    kept: list[Stretch] = []
    for name in seals.tables(offset) if table is None else [table]:
        wanted = [one for one in seals.live(name) if one.next > offset]
        again = [one for one in wanted if one.first >= oldest]
        kept += [one for one in wanted if one.first < oldest]
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


def at_head(place: PartitionPositions) -> bool:
    """Return whether the group's offset names the last journal record; or there is neither."""
    head, committed = place.seals.head, place.committed
    if head is None or committed is None:
        return head is None and place.named is None
    return committed == CommittedOffset(head.floor, head.n, place.seals.offset)


def disagreement(place: PartitionPositions) -> RewindRefusal | None:
    """Return whether a relay would stop here; then the truth has to be settled first."""
    head, committed = place.seals.head, place.committed
    if head is None or committed is None:
        return RewindRefusal(place.partition, "the group's offset and the journal do not agree")
    if not at_head(place):
        return RewindRefusal(
            place.partition,
            f"the group's offset names floor {committed.floor} (n={committed.n}), but the journal "
            f"ends at floor {head.floor} (n={head.n})",
        )
    if head.source_topic_id != place.topic_id:
        return RewindRefusal(place.partition, "the source topic was deleted and created again")
    if not place.log_start <= head.floor <= place.log_end:
        return RewindRefusal(
            place.partition,
            f"floor {head.floor} is not in the source log, {place.log_start} to {place.log_end}",
        )
    return None


def _out_of_reach(place: PartitionPositions, offset: int) -> RewindRefusal | None:
    if offset < place.log_start:
        return RewindRefusal(
            place.partition,
            f"messages from {offset} to {place.log_start - 1} were deleted: a rewind would remove "
            "their rows and could not read them again",
            f"choose an offset from {place.log_start} on",
        )
    if offset < place.seals.base:
        return RewindRefusal(
            place.partition,
            f"the journal no longer says which blocks hold the messages before {place.seals.base}",
            f"choose an offset from {place.seals.base} on",
        )
    return None


def as_error(refusals: Sequence[RewindRefusal]) -> RelayError:
    """Return all of them at once."""
    said = "\n  ".join(f"source partition {one.partition}: {one.why}" for one in refusals)
    steps = list(dict.fromkeys(one.next_step for one in refusals))
    kind = ContractBroken if {ACCEPT, NEW_APP} & set(steps) else ConfigError
    return kind(said, "; ".join(steps), page=ErrorPage.ACCEPT if kind is ContractBroken else "")
