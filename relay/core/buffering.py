"""What a poll adds to the buffers, and what a transaction takes out of them.

Receives arrivals and seal results; gives partitions. Every message of a table is
in exactly one block, because blocks are formed in order from offsets at or above
the table's mark, and the mark moves in the transaction that shows the block.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from relay.core.records import Arrival, JournalRecord, SealResult, TableMark
from relay.core.state import Buffer, Partition, Seal

PIECE = 1000
"""So many offsets of polls that bring little are kept in one array: for hours, where a table waits.
Each array is one more to look at in every commit."""


def count_in_blocks(partition: Partition, arrival: Arrival) -> int:
    """Return how many of the arrival's messages are in blocks already: those before the mark."""
    mark = partition.marks.get(arrival.table)
    return 0 if mark is None else bisect_left(arrival.offsets, mark)


def append(buffer: Buffer | None, arrival: Arrival, skip: int, now_ms: int) -> Buffer:
    """Return the buffer with the arrival's messages from `skip` on (at least one)."""
    total = len(arrival.offsets)
    messages = total - skip
    # In proportion where some are passed over: rows and bytes only decide when to seal.
    added = Buffer(
        arrival.offsets[skip],
        arrival.offsets[-1] + 1,
        messages,
        arrival.rows * messages // total,
        arrival.bytes * messages // total,
        now_ms,
        arrival.first_timestamp_ms,
        arrival.decoded * messages // total,
        arrival.beside * messages // total,
    )
    if buffer is None:
        return added
    if added.first_offset < buffer.next_offset:
        raise AssertionError(
            f"offset {added.first_offset} of {arrival.table} came after "
            f"{buffer.next_offset - 1}: a partition is read in order"
        )
    return _joined(buffer, added)


def split_buffer(
    buffer: Buffer, messages: int, end: int, behind: int, sizes: tuple[int, int], beside: int = 0
) -> tuple[Buffer, Buffer]:
    """Return the buffer's first messages, at least one, and the others, at least one.

    The first end before the offset `end`, the others begin at `behind`. `sizes` are the bytes of
    both; `beside` are those of the first ones' keys and headers.
    """
    # By their bytes, as rows are estimated: of large and small messages the count says nothing.
    part, total = (sizes[0], sum(sizes)) if any(sizes) else (messages, buffer.messages)
    first = replace(
        buffer,
        next_offset=end,
        messages=messages,
        rows=buffer.rows * part // total,
        bytes=buffer.bytes * part // total,
        decoded=buffer.decoded * part // total,
        beside=min(beside, buffer.beside),
    )
    left = replace(
        buffer,
        first_offset=behind,
        messages=buffer.messages - messages,
        rows=buffer.rows - first.rows,
        bytes=buffer.bytes - first.bytes,
        decoded=buffer.decoded - first.decoded,
        beside=buffer.beside - first.beside,
    )
    return first, left


def original_seal(result: SealResult) -> Seal:
    """Return the seal as it was before something was left of its buffer."""
    seal, left = result.seal, result.left
    if left is None or left.first_offset < seal.buffer.next_offset:
        return seal
    return replace(seal, buffer=_joined(seal.buffer, left))


def _joined(first: Buffer, second: Buffer) -> Buffer:
    """The buffer with the messages of both; `second` begins behind `first`."""
    return Buffer(
        first.first_offset,
        second.next_offset,
        first.messages + second.messages,
        first.rows + second.rows,
        first.bytes + second.bytes,
        first.opened_at_ms,
        first.first_timestamp_ms,
        first.decoded + second.decoded,
        first.beside + second.beside,
    )


def advance(partition: Partition, offsets: Sequence[int]) -> Partition:
    """Return the partition after a poll returned these offsets of it."""
    if offsets[0] < partition.position:
        raise AssertionError(
            f"polled offset {offsets[0]} is before the position {partition.position}"
        )
    polled = _with_offsets(partition.polled, offsets)
    return replace(partition, position=offsets[-1] + 1, polled=polled)


def advance_to_end(partition: Partition, end: int) -> Partition:
    """Return the partition after its reader came to the log's end, the offset `end`.

    Behind the last message may lie the marker of its transaction, or aborted records. Retention
    deletes them in time, and a floor in front of them would then look like unread messages.
    """
    return replace(partition, position=max(partition.position, end))


def take_out(
    partition: Partition,
    seals: Iterable[Seal],
    now_ms: int,
    left: Mapping[str, Buffer] | None = None,
) -> Partition:
    """Return the partition once these buffers are in blocks: marks, floor and count moved on.

    The seals are of whole buffers, or of their first messages: `left` is, by table, what of such a
    buffer is in no block yet.
    """
    marks = dict(partition.marks)
    buffers = dict(partition.buffers)
    for seal in seals:
        del buffers[seal.table]
        marks[seal.table] = seal.buffer.next_offset
    buffers |= left or {}
    floor = min((b.first_offset for b in buffers.values()), default=partition.position)
    counted, polled = _count_before(partition.polled, floor)
    flushed = not buffers
    return replace(
        partition,
        n=partition.n + 1,
        floor=floor,
        marks={table: offset for table, offset in marks.items() if offset > floor},
        buffers=buffers,
        polled=polled,
        count=partition.count + counted,
        flushed_at_ms=now_ms if flushed else partition.flushed_at_ms,
        recorded_at_ms=now_ms,
        fresh=False,
    )


def journal_record(
    index: int, before: Partition, after: Partition, results: Sequence[SealResult]
) -> JournalRecord:
    """Return what the journal says of `before` becoming `after`."""
    return JournalRecord(
        partition=index,
        source_topic_id=after.source_topic_id,
        epoch=after.epoch,
        n=after.n,
        previous_floor=before.floor,
        floor=after.floor,
        position=after.position,
        marks=tuple(TableMark(table, offset) for table, offset in sorted(after.marks.items())),
        results=tuple(results),
        reference=after.reference,
        count=after.count,
        flush_point=_at_flush_point(after),
        source_partitions=after.source_partitions,
    )


def settle(partition: Partition) -> Partition:
    """Return the partition once its record is committed: a flush point becomes the reference."""
    if not _at_flush_point(partition):
        return partition
    return replace(partition, reference=partition.floor, count=0)


def _at_flush_point(partition: Partition) -> bool:
    """Whether blocks hold exactly the messages before the floor, so that counts must meet.

    With empty buffers floor = position; but after a take-over the position may still lie
    before a mark, and then a block holds messages beyond it.
    """
    return partition.floor == partition.position and not partition.marks


def _with_offsets(
    polled: tuple[Sequence[int], ...], offsets: Sequence[int]
) -> tuple[Sequence[int], ...]:
    """Append offsets; few polled are few pieces, however long the floor stands still."""
    if not polled or len(polled[-1]) + len(offsets) > PIECE:
        return (*polled, offsets)
    return (*polled[:-1], array("q", polled[-1]) + array("q", offsets))


def _count_before(
    polled: tuple[Sequence[int], ...], floor: int
) -> tuple[int, tuple[Sequence[int], ...]]:
    """How many polled offsets lie before the floor, and the others."""
    counted = 0
    kept: list[Sequence[int]] = []
    for offsets in polled:
        if offsets[-1] < floor:
            counted += len(offsets)
        elif offsets[0] >= floor:
            kept.append(offsets)
        else:
            cut = bisect_left(offsets, floor)
            counted += cut
            kept.append(offsets[cut:])
    return counted, tuple(kept)
