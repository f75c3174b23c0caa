"""What topics take, as refusals teach it, and which messages no chunk can carry."""

from __future__ import annotations

import random
import string

import pyarrow as pa
import pytest

from relay.blocks.chunks import Encoder, decode
from relay.kafka.record_limits import CHUNK_ROOM, ROOM, Limits, oversized, record_bytes

LETTERS = string.ascii_letters + string.digits


def test_a_record_weighs_its_value_key_and_headers() -> None:
    assert record_bytes(b"four", b"key", [("name", b"value"), ("none", None)]) == 20
    assert record_bytes(None, None, []) == 0


def test_the_topic_says_what_it_takes() -> None:
    limits = Limits()
    assert limits.most("t") is None
    assert limits.learn("t", 5_000_000, 1_000_000)
    assert limits.most("t") == 1_000_000 - ROOM
    assert limits.most("other") is None
    limits.look_again("t", 1_000_000)
    assert limits.most("t") is not None
    limits.look_again("t", 2_000_000)
    assert limits.most("t") is None


def test_where_it_does_not_say_each_refusal_teaches() -> None:
    limits = Limits()
    sizes = [9_000_000, 5_000_000, 4_000_000]
    for size in sizes:
        assert limits.learn("t", size, None)
        assert limits.most("t") == size - 1
    assert not limits.learn("t", 9_000_000, None)
    assert limits.most("t") == 4_000_000 - 1


def test_a_batch_that_does_not_fit_says_nothing_of_its_records() -> None:
    limits = Limits()
    assert not limits.learn("t", 60_000, 100_000)
    assert limits.most("t") is None
    limits.halve("t", 60_000)
    assert limits.most("t") == 30_000


def batch(*sizes: int) -> pa.RecordBatch:
    chance = random.Random(1)
    texts = ["".join(chance.choices(LETTERS, k=size)) for size in sizes]
    return pa.RecordBatch.from_pydict({"text": texts})


@pytest.mark.parametrize(
    ("sizes", "rows_of", "found"),
    [
        ([10, 60_000, 10], [1, 1, 1], [(1, 1)]),
        ([60_000], [1], [(0, 1)]),
        ([10, 10, 60_000, 70_000, 10], [2, 0, 3], [(2, 1)]),
        ([60_000, 10, 10, 60_000], [1, 2, 0, 1], [(0, 1), (3, 1)]),
        ([10, 10, 10, 60_000], [0, 1, 3], [(2, 3)]),
        ([10, 20, 30], [1, 1, 1], []),
        ([], [0, 0], []),
    ],
)
def test_the_messages_that_no_chunk_can_carry(
    sizes: list[int], rows_of: list[int], found: list[tuple[int, int]]
) -> None:
    rows = batch(*sizes)
    chunks = Encoder(1 << 20).encode(rows, 40_000 - CHUNK_ROOM)
    large = oversized(chunks, rows_of, 40_000)
    assert [(one.message, one.row) for one in large] == found
    assert all(len(value) < 40_000 or count == 1 for value, count in chunks)
    if sizes:
        assert decode([value for value, _ in chunks]) == rows
