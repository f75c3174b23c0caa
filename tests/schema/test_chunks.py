"""Blocks as chunks and back."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import google_crc32c
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.blocks import chunks

SCHEMA = pa.schema([
    pa.field("a", pa.int64(), metadata={b"clickhouse": b"Int64"}),
    pa.field("b", pa.binary(), metadata={b"clickhouse": b"FixedString(9)"}),
])  # fmt: skip


def batch_of(sizes: list[int]) -> pa.RecordBatch:
    """Rows that do not compress, of these sizes in bytes; -1 is a null."""
    noise = random.Random(1)
    values = [None if size < 0 else noise.randbytes(size) for size in sizes]
    return pa.record_batch([pa.array(range(len(sizes)), pa.int64()), values], schema=SCHEMA)


@given(st.lists(st.integers(-1, 3_000), min_size=1, max_size=300), st.integers(4_000, 50_000))
@settings(max_examples=60, deadline=None)
def test_chunks_hold_the_batch_below_the_limit(sizes: list[int], limit: int) -> None:
    """Whatever the rows' sizes, every chunk is below the limit, and together they are the batch,
    field metadata too."""
    batch = batch_of(sizes)
    cut = chunks.Encoder(limit).encode(batch)
    assert all(len(data) < limit for data, _ in cut)
    assert all(rows > 0 for _, rows in cut)
    assert sum(rows for _, rows in cut) == len(sizes)
    assert chunks.decode([data for data, _ in cut]).equals(batch, check_metadata=True)


def test_a_slice_of_a_batch_is_cut_as_itself() -> None:
    """What lies before and behind a slice in memory is not in the chunks."""
    batch = batch_of([1_000] * 100).slice(40, 3)
    cut = chunks.Encoder(10_000).encode(batch)
    assert sum(len(data) for data, _ in cut) < 5_000
    assert chunks.decode([data for data, _ in cut]).equals(batch)


def test_a_row_that_is_too_large_is_a_chunk_by_itself() -> None:
    """Only the chunk of the large row is above the limit, and no row is lost."""
    batch = batch_of([10, 10, 20_000, 10])

    encoded = chunks.Encoder(10_000).encode(batch)

    assert [rows for value, rows in encoded if len(value) >= 10_000] == [1]
    assert chunks.decode([value for value, _ in encoded]).equals(batch)


def test_few_chunks_for_a_usual_block() -> None:
    """Chunks are filled: a block of rows of like sizes takes few more than its bytes need."""
    cut = chunks.Encoder(200_000).encode(batch_of([100] * 20_000))
    total = sum(len(data) for data, _ in cut)
    assert len(cut) <= total / 200_000 * 1.25 + 2


def test_an_empty_batch_has_no_chunks() -> None:
    """No rows, no chunks; and no chunks are no block."""
    assert chunks.Encoder(10_000).encode(batch_of([])) == []
    with pytest.raises(ValueError, match="at least one chunk"):
        chunks.decode([])


def test_a_damaged_chunk_is_an_error_or_shows_in_the_checksum() -> None:
    """Any flipped byte changes the checksum; what is no Arrow stream raises ValueError."""
    data = [data for data, _ in chunks.Encoder(20_000).encode(batch_of([50] * 1_000))]
    right = chunks.crc32c(data)
    for _ in range(200):
        damaged = bytearray(data[1])
        damaged[int.from_bytes(os.urandom(4)) % len(damaged)] ^= 0x40
        assert chunks.crc32c([data[0], bytes(damaged), *data[2:]]) != right
    with pytest.raises(ValueError, match=r"."):
        chunks.decode([b"no arrow"])
    with pytest.raises(ValueError, match=r"."):
        chunks.decode([data[0][: len(data[0]) // 2]])


@given(st.lists(st.binary(max_size=50), max_size=6))
def test_checksum_is_over_the_values_in_order(values: list[bytes]) -> None:
    """The checksum is CRC-32C of the values joined: RFC 3720's check value, and order counts."""
    assert chunks.crc32c(values) == google_crc32c.value(b"".join(values))
    assert chunks.crc32c([b"12345", b"6789"]) == 0xE3069283
    assert chunks.crc32c([b"6789", b"12345"]) != 0xE3069283


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 10, 2_003])
def test_what_fits_into_a_chunk_is_one_chunk(rows: int) -> None:
    """Also where its bits end within a byte."""
    batch = pa.record_batch({"a": pa.array([n % 2 == 0 for n in range(rows)])})
    assert [n for _, n in chunks.Encoder(100_000).encode(batch)] == [rows]


THREADS = """
import os
import pyarrow as pa
from relay.blocks import chunks
columns = {str(n): [f"{n} of {row}" for row in range(100)] for n in range(10)}
(chunk, _), = chunks.Encoder(1_000_000).encode(pa.record_batch(columns))
before = os.listdir("/proc/self/task")
chunks.decode([chunk])
print(len(os.listdir("/proc/self/task")) - len(before))
with pa.ipc.open_stream(chunk) as reader:
    list(reader)
print(len(os.listdir("/proc/self/task")) - len(before))
"""


def test_a_chunk_is_read_by_one_thread() -> None:
    """Handing each column to another takes seven times as long; as control, pyarrow does so."""
    ran = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, check=True)
    ours, pyarrows = map(int, ran.stdout.split())
    assert ours == 0
    assert pyarrows > 0
