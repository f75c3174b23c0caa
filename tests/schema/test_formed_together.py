"""Buffers of one table that are decoded at a time become what each becomes by itself."""

from __future__ import annotations

import random
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.blocks import chunks
from relay.blocks.chunks import Encoder
from relay.blocks.form_block import BlockFormer, Formed, Messages
from relay.blocks.message_rows import HEADER_BYTES, decode, header
from relay.core.state import Buffer, Seal, SealReason
from relay.kafka.record_limits import CHUNK_ROOM
from relay.process.perform import group_seals
from tests.schema.rows import TABLE, binary, codec_of, row, row_batch

CODEC = codec_of({"id": "UInt8", "name": "Nullable(String)", "list": "Array(UInt32)"})
FLAT = codec_of({"id": "UInt8", "name": "Nullable(String)", "flag": "Bool"})
NEW_FIELD = b"\x90\x06\x01"
"""Field 98, a varint, which no table here has."""


def made(codec_name: str, kind: str, number: int) -> bytes | None:
    """One message of `number`, of this kind."""
    codec = {"nested": CODEC, "flat": FLAT}[codec_name]
    good = row(codec, id=number, name=None if number % 3 else f"name {number}")
    match kind:
        case "good":
            return row_batch([good] * (number % 4 + 1))
        case "empty":
            return b""
        case "null":
            return None
        case "cut off":
            return row_batch([good])[:-1]
        case "too large":
            return row_batch([good, row(codec, id=256)])
        case "large":
            return row_batch([row(codec, id=number, name="\x00\xff".join(map(str, range(6_000))))])
        case _:
            return row_batch([good + NEW_FIELD])


kinds = st.sampled_from(
    ["good"] * 9 + ["empty", "null", "cut off", "too large", "large", "unknown"]
)
messages = st.lists(st.tuples(kinds, st.integers(0, 255)), min_size=1, max_size=6)
buffers = st.lists(messages, min_size=1, max_size=5)


def what(formed: Formed) -> object:
    """All of it, but for how its bytes are compressed and cut, and with whom it shares them."""
    rows_of: list[object] = []
    facts = formed.facts
    if formed.chunks:
        batch = chunks.decode([value for value, _ in formed.chunks])
        rows_of = batch.slice(facts.first_row or 0, facts.rows).to_pylist()
    listed = decode(formed.message_rows) if formed.message_rows else None
    rows = None if listed is None else (listed.offsets.tolist(), listed.rows.tolist())
    counts = facts.messages, facts.rows, facts.row_bytes, facts.schema_version
    # Of a row that is too large they name the bytes, which a neighbour's NULL adds a few to.
    dead = [(offset, why.kind, why.text[:20]) for offset, why in formed.dead]
    return rows_of, rows, counts, dead, list(facts.dead_groups.values()), facts.unknown


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize("codec", ["nested", "flat"])
@settings(deadline=None)
@given(
    drawn=buffers, unknown=st.sampled_from(["dead", "ignore"]), most=st.sampled_from([None, 20_000])
)
def test_together_as_alone(
    codec: str, drawn: list[list[tuple[str, int]]], unknown: str, most: int | None
) -> None:
    of = {"nested": CODEC, "flat": FLAT}[codec]
    given_ = [
        Messages(
            list(range(1_000 * at, 1_000 * at + len(some))),
            binary([made(codec, kind, number) for kind, number in some]),
        )
        for at, some in enumerate(drawn)
    ]
    former = BlockFormer(of, "batch", Encoder(1 << 20), unknown, most)
    alone = [what(former.form(one)) for one in given_]
    assert [what(one) for one in former.form_all(given_)] == alone


def good(*numbers: int) -> Messages:
    return Messages(list(numbers), binary([made("flat", "good", number) for number in numbers]))


def far_apart(count: int) -> Messages:
    """Messages of one row whose list of offsets is as large as their rows."""
    offsets = list(accumulate(random.Random(1).choices(range(1, 2**30), k=count)))
    return Messages(offsets, binary([made("flat", "good", 4)] * count))


def test_good_buffers_share_a_chunk_row_behind_row() -> None:
    """A record costs relay, broker and loader more than a few rows in it do."""
    formed = BlockFormer(FLAT, "batch", Encoder(1 << 20)).form_all([good(1, 2), good(7), good(8)])
    assert [(one.facts.first_row, one.facts.rows) for one in formed] == [(0, 5), (5, 4), (9, 1)]
    [(value, rows)] = formed[0].chunks
    assert rows == chunks.decode([value]).num_rows == 10
    assert all(one.chunks is formed[0].chunks for one in formed)
    assert {one.facts.crc32c for one in formed} == {chunks.crc32c([value])}


def test_one_bad_message_and_each_has_chunks_of_its_own() -> None:
    bad = Messages([9], binary([made("flat", "cut off", 9)]))
    formed = BlockFormer(FLAT, "batch", Encoder(1 << 20)).form_all([good(1, 2), bad, good(8)])
    assert [one.facts.first_row for one in formed] == [None] * 3
    assert [len(one.chunks) for one in formed] == [1, 0, 1]
    assert [one.facts.chunks for one in formed] == [1, 0, 1]


def test_what_needs_several_chunks_or_has_no_room_for_its_lists_is_not_shared() -> None:
    """The lists say which message each row came from; a shared chunk has one of each block."""
    buffers = [far_apart(200), far_apart(200)]
    shared = BlockFormer(FLAT, "batch", Encoder(1 << 20)).form_all(buffers)
    assert shared[1].facts.first_row is not None
    cut = BlockFormer(FLAT, "batch", Encoder(800)).form_all(buffers)
    assert [one.facts.first_row for one in cut] == [None] * 2
    lists = sum(HEADER_BYTES + len(one.message_rows) for one in shared)
    most = len(shared[0].chunks[0][0]) + lists + CHUNK_ROOM
    just = BlockFormer(FLAT, "batch", Encoder(1 << 20), most=most).form_all(buffers)
    assert just[1].facts.first_row is not None
    full = BlockFormer(FLAT, "batch", Encoder(1 << 20), most=most - 1).form_all(buffers)
    assert [one.facts.first_row for one in full] == [None] * 2


def test_a_list_s_header_has_room_for_its_name() -> None:
    """Of a thousand partitions the names alone are more than what a chunk leaves room for."""
    assert len(header(2**31 - 1)) <= HEADER_BYTES


def seal(table: str, partition: int, size: int) -> Seal:
    buffer = Buffer(0, 1, messages=1, rows=1, bytes=size, opened_at_ms=0, first_timestamp_ms=0)
    return Seal(partition, table, f"{table}:{partition}", SealReason.AGE, buffer)


def test_small_buffers_of_a_table_go_together() -> None:
    other = "shop.other"
    sizes = [(TABLE, 0, 10), (other, 0, 10), (TABLE, 1, 2 << 20), (TABLE, 2, 10), (TABLE, 3, 20)]
    seals = [seal(*one) for one in sizes]
    names = [[one.block_id for one in some] for some in group_seals(seals)]
    assert names == [
        [f"{TABLE}:0"],
        [f"{TABLE}:1"],
        [f"{other}:0"],
        [f"{TABLE}:2", f"{TABLE}:3"],
    ]
