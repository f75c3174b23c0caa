"""What became of a seal, from the moment the client has it."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from relay.blocks import chunks
from relay.blocks.chunks import Encoder
from relay.blocks.form_block import BlockFacts, BlockFormer, DeadMessage, Messages, grouped
from relay.core.records import ChunkShare, SealedBlock, SealResult
from relay.core.state import Seal, SealReason
from relay.process.seal_results import Sent
from relay.schema.dead_reason import DeadKind, DeadReason
from tests.core.build import buffer
from tests.schema.rows import binary, codec_of, row, row_batch

SEAL, OTHER = (
    Seal(index, "d.x", f"shop:d.x:{index}:1:5", SealReason.AGE, buffer(5)) for index in (0, 3)
)
UNFIT = [
    DeadMessage(at, DeadReason(DeadKind.DOES_NOT_FIT, f"row {at}: no", "a")) for at in (6, 8, 9)
]
NULL = DeadMessage(7, DeadReason(DeadKind.NULL_VALUE, "null value"))
DEAD = {UNFIT[0]: 3, NULL: 1}


def test_reasons_that_differ_in_values_are_counted_with_the_first() -> None:
    """In the order of the first ones: the journal names the first of all."""
    counts = grouped([UNFIT[0], NULL, *UNFIT[1:]])
    assert list(counts.items()) == list(DEAD.items())
    assert grouped([]) == {}


def test_a_block_and_dead_letters() -> None:
    facts = BlockFacts(4, 5, 60, chunks=2, crc32c=77, schema_version=8, dead_groups=DEAD)
    offsets: list[int] = []
    sent = Sent(SEAL, facts, offsets, SEAL, 0)
    offsets += [40, 41]

    block = SealedBlock("shop.blocks.d.x", 40, 42, 2, 4, 5, 60, 77, 8)
    assert sent.result("shop.blocks.d.x") == SealResult(SEAL, block, 4, "row 6: no", "does-not-fit")


def test_dead_letters_alone() -> None:
    sent = Sent(SEAL, BlockFacts(dead_groups=DEAD), [], SEAL, 0)

    assert sent.result("shop.blocks.d.x") == SealResult(SEAL, None, 4, "row 6: no", "does-not-fit")


def test_a_chunk_that_is_shared_is_the_firsts() -> None:
    facts = BlockFacts(1, 2, 9, chunks=1, crc32c=77, schema_version=8, first_row=3)

    block = Sent(OTHER, facts, [40], SEAL, 0).result("shop.blocks.d.x").block
    share = ChunkShare(0, SEAL.block_id, 3)
    assert block == SealedBlock("shop.blocks.d.x", 40, 41, 1, 1, 2, 9, 77, 8, share)


def test_a_block_that_lies_elsewhere_says_where() -> None:
    facts = BlockFacts(1, 2, 9, chunks=2, crc32c=77, schema_version=8)

    block = Sent(OTHER, facts, [40, 41], OTHER, 1).result("shop.blocks.d.x").block
    share = ChunkShare(1, OTHER.block_id, 0)
    assert block == SealedBlock("shop.blocks.d.x", 40, 42, 2, 1, 2, 9, 77, 8, share)


def test_chunks_that_were_not_acknowledged_are_no_block() -> None:
    sent = Sent(SEAL, BlockFacts(chunks=2), [40], SEAL, 0)

    with pytest.raises(AssertionError, match="offsets of 1 of 2 chunks"):
        sent.result("shop.blocks.d.x")


def test_it_holds_no_chunk_and_no_dead_letter() -> None:
    """A transaction's would lie in memory until it is flushed, beside the client's own."""
    codec = codec_of({"id": "UInt8"})
    messages = [row_batch([row(codec, id=1)]), b"dead letter"]
    formed = BlockFormer(codec, "batch", Encoder(1 << 20)).form(Messages([5, 6], binary(messages)))
    [(value, _)] = formed.chunks
    assert formed.facts.crc32c == chunks.crc32c([value])
    assert [one.offset for one in formed.facts.dead_groups] == [6]

    assert {value, formed.message_rows} <= held_by(formed)
    assert b"dead letter" in held_by(messages)
    assert not held_by(Sent(SEAL, formed.facts, [40], SEAL, 0))


def held_by(root: Any) -> set[bytes]:
    """All bytes that can be reached from here, but through classes."""
    seen: dict[int, Any] = {}
    left = [root]
    while left:
        one = left.pop()
        if id(one) not in seen and not isinstance(one, type):
            seen[id(one)] = one
            left += gc.get_referents(one)
    return {one for one in seen.values() if isinstance(one, bytes)}
