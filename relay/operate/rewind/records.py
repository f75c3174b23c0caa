"""Makes the journal records of rewinds and accepts; pure.

Receives the record that is the head now and what was decided, gives the next one.
"""

# pure

from __future__ import annotations

from dataclasses import dataclass

from relay.blocks.journal import renames_offsets
from relay.operate.rewind.plan import Course
from relay.records_pb2 import Accept, Commit, Mark, Rewind


@dataclass(frozen=True, slots=True)
class RewindAuthor:
    """Who writes, when, and why."""

    member: str
    now_ms: int
    why: str


def rewinding(
    head: Commit, course: Course, kept: frozenset[str], next_letter: int, author: RewindAuthor
) -> Commit:
    """Begin a rewind: floor and marks are moved, and relays wait.

    Args:
        head: the last record.
        course: of its partition.
        kept: tables whose old rows stay in ClickHouse.
        next_letter: offset that the partition's next dead letter gets.
        author: of the record.
    """
    record = _next(head, author, course.floor, course.marks, epoch=course.epoch)
    record.reference, record.count = course.floor, 0
    starts, stay = _marks(course.starts), sorted(kept & set(course.starts))
    record.rewind.CopyFrom(
        Rewind(starts=starts, kept=stay, why=author.why, next_letter=next_letter)
    )
    return record


def rewound(head: Commit, author: RewindAuthor) -> Commit:
    """End it: relays go on."""
    marks = {mark.table: mark.offset for mark in head.marks}
    record = _next(head, author, head.floor, marks, epoch=head.epoch)
    record.reference, record.count = head.reference, head.count
    if head.flush_point:
        record.reference, record.count = head.floor, 0
    record.rewound = True
    return record


def accepted(
    head: Commit,
    floor: int,
    topic_id: str,
    statement: tuple[tuple[str, ...], str],
    next_letter: int,
    author: RewindAuthor,
) -> Commit:
    """Take note: relays go on from `floor`.

    Args:
        head: the last record.
        floor: where; the one of `head` where only the group's offset was moved.
        topic_id: of the source topic now.
        statement: kinds of what was found, and both values.
        next_letter: offset that the partition's next dead letter gets.
        author: of the record.
    """
    kinds, found = statement
    said = Accept(kinds=kinds, found=found, why=author.why, next_letter=next_letter)
    marks = {mark.table: mark.offset for mark in head.marks}
    if renames_offsets(said):
        marks = {}
    record = _next(head, author, floor, marks, epoch=head.epoch + 1)
    record.source_topic_id = topic_id
    record.reference, record.count = floor, 0
    if tuple(kinds) == ("offsets",):
        record.reference, record.count = head.reference, head.count
        if head.flush_point:
            record.reference, record.count = head.floor, 0
    record.accept.CopyFrom(said)
    return record


def _next(
    head: Commit, author: RewindAuthor, floor: int, marks: dict[str, int], *, epoch: int
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
