"""What became of a seal, from the moment the client has it."""

from __future__ import annotations

import gc
from typing import Any

import google_crc32c
import pytest

from relay.blocks.form_block import DeadMessage, Formed
from relay.core.records import SealedBlock, SealResult
from relay.core.state import Seal, SealReason
from relay.process.seal_results import Sent
from relay.schema.dead_reason import DeadKind, DeadReason
from tests.core.build import buffer

SEAL = Seal(0, "d.x", "shop:d.x:0:1:5", SealReason.AGE, buffer(5))
DEAD = [
    DeadMessage(6, b"dead letter", DeadReason(DeadKind.DOES_NOT_FIT, "row 1: no", "a")),
    DeadMessage(7, None, DeadReason(DeadKind.NULL_VALUE, "null value")),
]


def test_a_block_and_dead_letters() -> None:
    formed = Formed([(b"one", 2), (b"two", 3)], DEAD, 4, 5, 60, {"9": 1}, 8)
    offsets: list[int] = []
    sent = Sent.of(SEAL, formed, offsets)
    offsets += [40, 41]

    crc32c = google_crc32c.value(b"onetwo")
    block = SealedBlock("shop.blocks.d.x", 40, 42, 2, 4, 5, 60, crc32c, 8)
    assert sent.result("shop.blocks.d.x") == SealResult(SEAL, block, 2, "row 1: no", "does-not-fit")
    assert sent.unknown == {"9": 1}


def test_dead_letters_alone() -> None:
    sent = Sent.of(SEAL, Formed([], DEAD, 0, 0, 0), [])

    assert sent.result("shop.blocks.d.x") == SealResult(SEAL, None, 2, "row 1: no", "does-not-fit")


def test_chunks_that_were_not_acknowledged_are_no_block() -> None:
    sent = Sent.of(SEAL, Formed([(b"one", 2), (b"two", 3)], [], 4, 5, 60), [40])

    with pytest.raises(AssertionError, match="offsets of 1 of 2 chunks"):
        sent.result("shop.blocks.d.x")


def test_it_holds_no_chunk_and_no_dead_letter() -> None:
    """A transaction's would lie in memory until it is flushed, beside the client's own."""
    formed = Formed([(b"one", 2)], DEAD, 4, 5, 60)

    assert {b"one", b"dead letter"} <= held_by(formed)
    assert not held_by(Sent.of(SEAL, formed, [40]))


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
