"""Makes the journal records of rewinds and accepts, from the last one and a decision; pure."""

# pure

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from relay.operate.rewind.plan import Course, Note, PartitionPositions
from relay.records_pb2 import Accept, Commit, Mark, Rewind


class NextLetter(NamedTuple):
    """The place of a source partition's next dead letter; an empty topic id: there is no topic."""

    topic_id: str
    offset: int


@dataclass(frozen=True, slots=True)
class RewindAuthor:
    """Who writes, when, and why."""

    member: str
    now_ms: int
    why: str


def rewinding(
    head: Commit,
    course: Course,
    kept: frozenset[str],
    next_letter: NextLetter,
    author: RewindAuthor,
) -> Commit:
    """Begin a rewind: floor and marks are moved, and relays wait.

    The old rows of the tables in `kept` stay in ClickHouse.
    """
    record = _next(head, author, course.floor, course.marks, epoch=course.epoch)
    record.reference, record.count = course.floor, 0
    record.rewind.CopyFrom(
        Rewind(
            starts=_marks(course.starts),
            kept=sorted(kept & course.starts.keys()),
            why=author.why,
            next_letter=next_letter.offset,
            dead_topic_id=next_letter.topic_id,
        )
    )
    return record


def rewound(head: Commit, begins: tuple[int, Mapping[str, int]], author: RewindAuthor) -> Commit:
    """End the rewind that `head`, the last record, began: relays go on.

    They begin at this floor and these marks: those of `head`, or later ones where messages had
    gone from the source log.
    """
    floor, marks = begins
    record = _next(head, author, floor, marks, epoch=head.epoch)
    record.reference, record.count = head.reference, head.count
    if head.flush_point or floor > head.floor:
        record.reference, record.count = floor, 0
    record.rewound = True
    return record


def accepted(
    place: PartitionPositions, note: Note, next_letter: NextLetter, author: RewindAuthor
) -> Commit:
    """Take note of what relays stop at in a partition."""
    head = place.head
    record = _next(head, author, note.floor, note.marks, epoch=head.epoch + 1)
    record.source_topic_id = place.topic_id
    record.reference, record.count = note.floor, 0
    if note.kinds == ("offsets",):  # the floor is the head's, and so its reference holds
        record.reference, record.count = head.reference, head.count
        if head.flush_point:
            record.reference, record.count = head.floor, 0
    record.accept.CopyFrom(
        Accept(
            kinds=note.kinds,
            found=note.found,
            why=author.why,
            next_letter=next_letter.offset,
            dead_topic_id=next_letter.topic_id,
        )
    )
    return record


def _next(
    head: Commit, author: RewindAuthor, floor: int, marks: Mapping[str, int], *, epoch: int
) -> Commit:
    above = {table: mark for table, mark in marks.items() if mark > floor}
    return Commit(
        app=head.app,
        source_topic=head.source_topic,
        source_topic_id=head.source_topic_id,
        partition=head.partition,
        epoch=epoch,
        n=head.n + 1,
        previous_floor=head.floor,
        floor=floor,
        position=floor,
        marks=_marks(above),
        member=author.member,
        written_at_ms=author.now_ms,
        flush_point=not above,
    )


def _marks(marks: dict[str, int]) -> list[Mark]:
    return [Mark(table=table, offset=offset) for table, offset in sorted(marks.items())]
