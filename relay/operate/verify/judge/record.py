"""A journal record by itself, and what those before it said of its source partition. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from relay.operate.verify.judge.anomaly import UnplacedAnomaly, backward, foreign, overlap, torn
from relay.program.plural import several
from relay.records_pb2 import Block, Commit, DeadLetters


@dataclass(frozen=True, slots=True)
class JournalPlace:
    """App, topic and partition that records must name."""

    app: str
    source_topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class ChainHead:
    """What the journal has said of one source partition so far.

    Attributes:
        n, epoch, floor, topic_id: of the last record.
        position: of the last record; it may go back, to the floor, when a relay takes over.
        marks: above the floor.
        reference: the last forced flush point.
        count: messages before the floor since the reference, as the relay counted its polls.
        covered: the same messages and those beyond the floor, as blocks and dead letters
            hold them; None until a flush point is seen, where history was cut by retention.
        ends: by block topic and its partition, one past the last chunk.
        offset: of the last record in the journal.
        rewinding: a rewind was begun and has not ended.
        before_rewind: floor and marks of the record before the one that began it, where known.
    """

    n: int
    epoch: int
    floor: int
    topic_id: str
    marks: Mapping[str, int]
    reference: int
    count: int
    covered: int | None
    offset: int
    position: int
    ends: Mapping[tuple[str, int], int]
    rewinding: bool = False
    before_rewind: tuple[int, Mapping[str, int]] | None = None


def judge_place(place: JournalPlace, commit: Commit) -> Iterator[UnplacedAnomaly]:
    """Yield a record in the wrong place."""
    origin = (commit.app, commit.source_topic, commit.partition)
    expected = (place.app, place.source_topic, place.partition)
    if origin != expected:
        yield foreign(f"the record belongs to {origin}, expected {expected}")


def judge_fields(commit: Commit) -> Iterator[UnplacedAnomaly]:
    """Yield contradictions between the fields of one record."""
    if not commit.previous_floor <= commit.floor and not by_person(commit):
        yield backward(f"floor {commit.floor} after {commit.previous_floor}")
    if commit.floor > commit.position:
        yield torn(f"floor {commit.floor} lies beyond the position {commit.position}")
    for mark in commit.marks:
        if mark.offset <= commit.floor:
            yield torn(f"mark {mark.offset} of {mark.table} is not above the floor {commit.floor}")
    if commit.flush_point != (commit.floor == commit.position and not commit.marks):
        yield torn(
            f"flush_point is {commit.flush_point} with floor {commit.floor}, position "
            f"{commit.position} and {several(len(commit.marks), 'mark')}"
        )
    if commit.reference > commit.floor or commit.count < 0:
        yield torn(
            f"the record's reference {commit.reference}, count {commit.count} and floor "
            f"{commit.floor} do not fit together"
        )


def judge_blocks(commit: Commit) -> Iterator[UnplacedAnomaly]:
    """Yield blocks that contradict their record, and tables that it seals twice."""
    tables = [block.table for block in commit.blocks]
    if len(set(tables)) != len(tables):
        yield overlap(f"a table has two blocks in one transaction: {sorted(tables)}")
    for dead in commit.dead:
        if dead.messages < 1:
            yield torn(f"the record lists {dead.messages} dead letters of {dead.table!r}")
    app, partition, epoch = commit.app, commit.partition, commit.epoch
    for block in commit.blocks:
        expected = f"{app}:{block.table}:{partition}:{epoch}:{block.first_source_offset}"
        rows, of_messages, chunks = block.rows, block.messages, block.chunks
        if block.id != expected or block.partition != partition:
            yield torn(f"block {block.id} of partition {block.partition} is not {expected}")
        if rows < 1 or of_messages < 1 or chunks < 1:
            yield torn(
                f"block {block.id} has {of_messages} messages, {rows} rows and {chunks} chunks"
            )
        elif rows < of_messages:  # an empty batch is a dead letter
            yield torn(f"block {block.id} has {rows} rows of {of_messages} messages")
        if block.next_offset - block.first_offset < chunks:
            yield torn(
                f"block {block.id} has {chunks} chunks in offsets {block.first_offset} to "
                f"{block.next_offset}"
            )


def by_person(commit: Commit) -> bool:
    """Return whether `relay rewind` or `relay accept` wrote it as their decision."""
    return commit.HasField("rewind") or commit.HasField("accept")


def count_messages(commit: Commit) -> int:
    """Count the source messages whose fate the record tells."""
    # A loop: a generator for each record would cost more than what it gives.
    messages = 0
    for part in sealed_parts(commit):
        messages += part.messages
    return messages


def sealed_parts(commit: Commit) -> list[Block | DeadLetters]:
    """Return blocks and dead letters: a buffer that is sealed becomes one of each at most."""
    return [*commit.blocks, *commit.dead]
