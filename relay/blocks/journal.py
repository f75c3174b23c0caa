"""Journal records on the wire, and the metadata of a committed floor.

Receives and gives values of relay.core.records; `Commit` in records.proto is their form
in the journal topic. What is read is checked as what is written is: a record that does
not say what it must is an error here, not a surprise later.
"""

from __future__ import annotations

from dataclasses import dataclass

from relay.core.records import JournalRecord, SealResult, TableMark
from relay.records_pb2 import Accept, Commit


@dataclass(frozen=True, slots=True)
class Author:
    """Who writes: the same for every record of a process."""

    app: str
    source_topic: str
    member: str


def encode(record: JournalRecord, author: Author, now_ms: int) -> bytes:
    """Return the record as the journal topic holds it.

    Parts are added in place and not made first: a message made by itself has memory of its
    own, and at every 10 000th release of such the library gives all that is free back to
    the kernel (`malloc_trim`). With 200 tables that was every 40 commits, and took 200 to
    500 MB of pages from under buffers about to be filled again.
    """
    commit = Commit(
        app=author.app,
        source_topic=author.source_topic,
        source_topic_id=record.source_topic_id,
        partition=record.partition,
        epoch=record.epoch,
        n=record.n,
        previous_floor=record.previous_floor,
        floor=record.floor,
        position=record.position,
        reference=record.reference,
        count=record.count,
        member=author.member,
        written_at_ms=now_ms,
        flush_point=record.flush_point,
        source_partitions=record.source_partitions,
    )
    for mark in record.marks:
        commit.marks.add(table=mark.table, offset=mark.offset)
    for result in record.results:
        _add_block(commit, result, now_ms)
        _add_dead(commit, result)
    return commit.SerializeToString()


def decode(value: bytes) -> JournalRecord:
    """Return what take-over needs of a record; blocks and dead letters stay with the loader."""
    commit = Commit.FromString(value)
    return JournalRecord(
        partition=commit.partition,
        source_topic_id=commit.source_topic_id,
        epoch=commit.epoch,
        n=commit.n,
        previous_floor=commit.previous_floor,
        floor=commit.floor,
        position=commit.position,
        marks=tuple(TableMark(mark.table, mark.offset) for mark in commit.marks),
        results=(),
        reference=commit.reference,
        count=commit.count,
        flush_point=commit.flush_point,
        rewinding=commit.HasField("rewind"),
        source_partitions=commit.source_partitions,
        source_topic=commit.source_topic,
    )


def _add_block(commit: Commit, result: SealResult, now_ms: int) -> None:
    block, seal = result.block, result.seal
    if block is None:
        return
    added = commit.blocks.add(
        id=seal.block_id,
        table=seal.table,
        topic=block.topic,
        partition=seal.partition,
        first_offset=block.first_offset,
        next_offset=block.next_offset,
        chunks=block.chunks,
        messages=block.messages,
        rows=block.rows,
        row_bytes=block.row_bytes,
        crc32c=block.crc32c,
        first_source_offset=seal.buffer.first_offset,
        next_source_offset=seal.buffer.next_offset,
        schema_version=block.schema_version,
        opened_at_ms=seal.buffer.opened_at_ms,
        sealed_at_ms=now_ms,
        reason=seal.reason.value,
        first_timestamp_ms=seal.buffer.first_timestamp_ms,
        decoded_bytes=block.decoded_bytes,
    )
    if (share := block.share) is not None:
        added.share.partition = share.partition
        added.share.first = share.first
        added.share.first_row = share.first_row


def _add_dead(commit: Commit, result: SealResult) -> None:
    if not result.dead_messages:
        return
    commit.dead.add(
        table=result.seal.table,
        messages=result.dead_messages,
        first_source_offset=result.seal.buffer.first_offset,
        next_source_offset=result.seal.buffer.next_offset,
        reason=result.dead_reason,
        kind=result.dead_kind,
    )


def renames_offsets(accept: Accept) -> bool:
    """Return whether an offset may name another message from an accept's record on.

    What was sealed before is settled: no later rewind is of those messages.
    """
    return bool({"topic", "truncated"} & set(accept.kinds))


def rewind_starts(rewind: Commit) -> dict[str, int]:
    """Return the source offsets from which a rewind's record supersedes anything, by table."""
    return {start.table: start.offset for start in rewind.rewind.starts}


def carried_out(rewind: Commit, end: Commit) -> Commit:
    """Return the record of a rewind as it was carried out, by the record that ends it.

    Where messages had gone from the source log before their rows were removed, the end has a later
    place of a table than the rewind's start: blocks and dead letters that begin before it count.
    """
    places = {mark.table: mark.offset for mark in end.marks}
    carried = Commit()
    carried.CopyFrom(rewind)
    for start in carried.rewind.starts:
        start.offset = max(start.offset, places.get(start.table, end.floor))
    return carried
