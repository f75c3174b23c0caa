"""What polls add and transactions take away: marks, floor, count, reference, flush points."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relay.core.buffering import (
    PIECE,
    advance,
    advance_to_end,
    append,
    count_in_blocks,
    journal_record,
    original_seal,
    settle,
    split_buffer,
    take_out,
)
from relay.core.records import TableMark
from relay.core.state import Partition, Seal, SealReason
from tests.core.build import arrival, buffer, partition, result


def seal(table: str, of: Partition) -> Seal:
    return Seal(0, table, f"id of {table}", SealReason.ROWS, of.buffers[table])


def test_messages_before_the_mark_are_in_blocks() -> None:
    marked = partition(marks={"d.x": 5})

    assert count_in_blocks(marked, arrival("d.x", 3, 4, 5, 9)) == 2
    assert count_in_blocks(marked, arrival("d.y", 3, 4)) == 0
    assert count_in_blocks(marked, arrival("d.x", 1, 2)) == 2


def test_a_buffer_grows_in_order() -> None:
    first = append(None, arrival("d.x", 2, 4, first_timestamp_ms=9), 0, 70)
    assert first == replace(buffer(2), next_offset=5, messages=2, rows=2, bytes=20,
                            opened_at_ms=70, first_timestamp_ms=9)  # fmt: skip
    grown = append(first, arrival("d.x", 5, 8), 0, 99)
    assert (grown.next_offset, grown.messages, grown.opened_at_ms) == (9, 4, 70)

    with pytest.raises(AssertionError, match=r"offset 4 of .* came after 8"):
        append(grown, arrival("d.x", 4), 0, 99)


def test_rows_and_bytes_of_passed_over_messages_do_not_count() -> None:
    made = append(None, arrival("d.x", 0, 1, 2, 3), 3, 0)

    assert (made.first_offset, made.messages, made.rows, made.bytes) == (3, 1, 1, 10)


def test_keys_and_headers_are_counted_beside_the_rows() -> None:
    """Of passed-over messages in proportion, like bytes; of parts as they are."""
    made = append(None, arrival("d.x", 0, 1, 2, 3, beside=400), 3, 0)
    assert (made.bytes, made.beside, made.memory) == (10, 100, 110)
    grown = append(made, arrival("d.x", 4, beside=7), 0, 0)
    assert (grown.bytes, grown.beside) == (20, 107)
    first, left = split_buffer(grown, 1, 4, 4, (10, 10), beside=100)
    assert (first.beside, left.beside) == (100, 7)
    first, left = split_buffer(grown, 1, 4, 4, (10, 10), beside=1_000)
    assert (first.beside, left.beside) == (107, 0), "what was passed over is only estimated"
    whole = replace(seal("d.x", partition(buffers={"d.x": grown})), buffer=first)
    assert original_seal(replace(result(whole), left=left)).buffer == grown


def test_what_does_not_fit_into_a_block_stays_behind_its_mark() -> None:
    """The floor is at the first message left, and no message before it is counted as missing."""
    first, left = split_buffer(buffer(0, 3, decoded=80), 1, 1, 2, (10, 30))
    assert (first.next_offset, first.messages, first.bytes, first.decoded) == (1, 1, 10, 20)
    assert (left.first_offset, left.messages, left.bytes, left.decoded) == (2, 3, 30, 60)
    assert left.next_offset == 4

    before = partition(0, 6, buffers={"d.x": buffer(0, 3), "d.y": buffer(4, 5)})
    of = replace(seal("d.x", before), buffer=first)
    after = take_out(before, [of], 50, {"d.x": left})
    assert (after.floor, after.marks, after.count) == (2, {}, 2)
    assert after.buffers == {"d.x": left, "d.y": buffer(4, 5)}

    earlier = partition(0, 6, buffers={"d.x": buffer(1, 4), "d.y": buffer(0)})
    first, left = split_buffer(earlier.buffers["d.x"], 2, 3, 3, (20, 20))
    of = replace(seal("d.x", earlier), buffer=first)
    after = take_out(earlier, [of], 50, {"d.x": left})
    assert (after.floor, after.marks) == (0, {"d.x": 3})


def test_the_parts_of_a_buffer_have_their_own_sizes() -> None:
    """Red before: of a message of 9 MB in front of 1,000 of 1 kB 9,990 bytes were thought taken."""
    whole = buffer(0, 1_000, bytes=10_000_000, rows=2_000, decoded=100_000_000)
    first, left = split_buffer(whole, 1, 1, 1, (9_000_000, 1_000_000))
    assert (first.bytes, first.rows, first.decoded) == (9_000_000, 1_800, 90_000_000)
    assert (left.bytes, left.rows, left.decoded) == (1_000_000, 200, 10_000_000)

    behind, large = split_buffer(whole, 1_000, 1_000, 1_000, (1_000_000, 9_000_000))
    assert (behind.messages, behind.bytes) == (1_000, 1_000_000)
    assert (large.messages, large.bytes) == (1, 9_000_000)


def test_parts_without_a_byte_are_in_proportion_to_their_messages() -> None:
    """Null values: what the buffer counts are their headers."""
    first, left = split_buffer(buffer(0, 3, bytes=80), 1, 1, 1, (0, 0))
    assert (first.bytes, left.bytes) == (20, 60)


def test_a_seal_and_what_is_left_are_what_was_asked_for() -> None:
    before = partition(0, 4, buffers={"d.x": buffer(0, 3, decoded=7)})
    whole = seal("d.x", before)
    first, left = split_buffer(whole.buffer, 3, 3, 3, (30, 10))
    made = result(replace(whole, buffer=first))
    assert original_seal(replace(made, left=left)) == whole
    assert original_seal(made) != whole
    assert original_seal(replace(made, left=replace(left, messages=2))) != whole
    assert original_seal(replace(made, left=replace(left, first_offset=2))) != whole


def test_the_floor_is_the_first_offset_not_wholly_in_blocks() -> None:
    """With a buffer left the floor is its first offset, and the sealed table has a mark."""
    before = partition(0, 4, buffers={"d.x": buffer(0, 2), "d.y": buffer(3)})

    after = take_out(before, [seal("d.x", before)], 50)
    assert (after.floor, after.marks, after.count, after.n) == (3, {}, 3, 2)
    after = take_out(before, [seal("d.y", before)], 50)
    assert (after.floor, after.marks, after.count) == (0, {"d.y": 4}, 0)


def test_without_buffers_floor_is_position_and_marks_are_gone() -> None:
    before = partition(0, 4, buffers={"d.x": buffer(0, 2), "d.y": buffer(3)}, marks={"d.z": 2})

    after = take_out(before, [seal("d.x", before), seal("d.y", before)], 50)

    assert (after.floor, after.marks, after.buffers, after.polled) == (4, {}, {}, ())
    assert (after.count, after.flushed_at_ms) == (4, 50)


def test_only_messages_that_were_there_are_counted() -> None:
    """Transaction markers take offsets; the count never comes from offset arithmetic."""
    before = partition(0)
    for offsets in ((0, 3), (5, 9, 11), (12,)):
        before = advance(before, offsets)
    before = replace(before, buffers={"d.x": buffer(9)})

    after = take_out(before, [], 0)

    assert (after.floor, after.count) == (9, 3)
    assert [tuple(p) for p in after.polled] == [(9, 11, 12)]


def test_small_polls_are_kept_in_few_pieces() -> None:
    """A floor may stand still for hours, while one table waits for its topic."""
    held = partition(0)
    for offset in range(0, 20 * PIECE, 2):
        held = advance(held, (offset,))
    held = advance(held, range(20 * PIECE, 23 * PIECE))
    assert len(held.polled) == 11

    after = take_out(replace(held, buffers={"d.x": buffer(3 * PIECE)}), [], 0)

    assert (after.count, after.polled[0][0]) == (1.5 * PIECE, 3 * PIECE)
    assert sum(map(len, after.polled)) == 11.5 * PIECE


def test_a_flush_point_becomes_the_reference() -> None:
    before = partition(0, 3, buffers={"d.x": buffer(0, 2)})
    after = take_out(before, [seal("d.x", before)], 0)

    record = journal_record(0, before, after, [])
    assert (record.flush_point, record.reference, record.count) == (True, 0, 3)
    assert (settle(after).reference, settle(after).count) == (3, 0)


def test_what_lies_behind_the_last_message_is_passed_with_it() -> None:
    """Markers and aborted records up to the log's end are no messages, and are not counted."""
    before = advance_to_end(partition(0, 3, buffers={"d.x": buffer(0, 2)}), 9)
    after = take_out(before, [seal("d.x", before)], 0)

    record = journal_record(0, before, after, [])
    assert (record.floor, record.position, record.count, record.flush_point) == (9, 9, 3, True)
    assert settle(after).reference == 9


def test_an_end_passes_no_message_that_is_held() -> None:
    before = advance_to_end(partition(0, 3, buffers={"d.x": buffer(0, 1), "d.y": buffer(2)}), 9)

    after = take_out(before, [seal("d.x", before)], 0)

    assert (after.floor, after.position, after.count) == (2, 9, 2)


def test_an_end_of_before_later_messages_sets_nothing_back() -> None:
    assert advance_to_end(partition(0, 3), 2).position == 3


def test_no_flush_point_while_a_buffer_is_left() -> None:
    before = partition(0, 3, buffers={"d.x": buffer(0, 1), "d.y": buffer(2)})
    after = take_out(before, [seal("d.x", before)], 0)

    assert not journal_record(0, before, after, []).flush_point
    assert settle(after) == after


def test_no_flush_point_before_a_mark() -> None:
    """After a take-over the position may be before a mark: then blocks hold more than is
    counted, and a flush point would let the verifier find a gap that is none."""
    before = partition(5, 7, buffers={"d.y": buffer(5)}, marks={"d.x": 9})
    after = take_out(before, [seal("d.y", before)], 0)

    record = journal_record(0, before, after, [])
    assert (after.floor, after.position, record.marks) == (7, 7, (TableMark("d.x", 9),))
    assert not record.flush_point
    assert settle(after) == after


def test_a_journal_record_chains_to_the_one_before() -> None:
    before = partition(2, 6, buffers={"d.x": buffer(2, 3), "d.y": buffer(4)}, epoch=7)
    after = take_out(before, [seal("d.x", before)], 0)

    record = journal_record(5, before, after, [])

    assert (record.partition, record.epoch, record.n) == (5, 7, 2)
    assert (record.previous_floor, record.floor, record.position) == (2, 4, 6)
