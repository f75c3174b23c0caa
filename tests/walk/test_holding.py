"""What holds a row's bytes, and what does not: the values that the product hands on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from relay.arrow.byte_column import ByteColumn
from relay.blocks import chunks
from relay.blocks.form_block import BlockFacts, Formed
from relay.intake.sort_poll import Poll
from relay.records_pb2 import Block, Commit
from tests.walk.holding import Holding

MARKER = "3f9a0c5e7d1b286e4ac09f57"
BATCH = pa.record_batch({"id": [2], "v": [MARKER]})
BYTES = f"row {MARKER}".encode()
MEMORY = np.frombuffer(BYTES, np.uint8)


def column(value: bytes) -> ByteColumn:
    held = ByteColumn()
    memory = np.frombuffer(value, np.uint8)
    places = np.array([memory.ctypes.data])
    held.extend(places, np.array([len(memory)]), np.zeros(1, np.int64))
    return held


@pytest.mark.parametrize(
    "value",
    [
        MARKER,
        BYTES,
        bytearray(BYTES),
        memoryview(BYTES),
        MEMORY,
        pa.py_buffer(BYTES),
        pa.array([None, BYTES]),
        pa.chunked_array([pa.array([BYTES])]),
        BATCH,
        pa.scalar(MARKER),
        [b"", (1, {"value": BYTES})],
        {MARKER: 1},
        Commit(blocks=[Block(id=MARKER)]),
        Commit(blocks=[Block(id=MARKER)]).blocks,
        Poll(memory=[(MEMORY, None)]),
        [Formed(BlockFacts(), [(BYTES, 1)])],
        column(BYTES),
    ],
    ids=lambda value: type(value).__name__,
)
def test_held(value: object) -> None:
    """As it is, or some steps below."""
    assert Holding(MARKER).of(value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        MARKER[:-1],
        BYTES[:-1],
        MEMORY[:-1],
        np.array([MEMORY.ctypes.data]),
        pa.array([BYTES[:-1]]),
        Commit(blocks=[Block(id="another")]),
        Poll(memory=[(np.zeros(9, np.uint8), None)]),
        Formed(BlockFacts(), [(b"another", 1)]),
        lambda: BYTES,
        [[[[[BYTES]]]]],
    ],
    ids=lambda value: type(value).__name__,
)
def test_not_held(value: object) -> None:
    """Other bytes, an address, a function that would have them, or too far below."""
    assert not Holding(MARKER).of(value)


def test_what_refers_to_itself_has_an_end() -> None:
    """However deep one looks."""
    value: list[Any] = []
    value.append(value)
    assert not Holding(MARKER, depth=1_000_000).of(value)


def test_the_bytes_are_seen_in_a_chunk_though_it_is_compressed() -> None:
    """LZ4 leaves what does not repeat as it is: else the way would end where a block begins."""
    ((value, _),) = chunks.Encoder(1 << 20).encode(BATCH)
    assert Holding(MARKER).of(value)
