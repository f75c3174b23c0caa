"""Values copied by compiled code and without it: the same bytes, ends and nulls."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from relay.arrow import byte_column
from relay.arrow.byte_column import NULL, ByteColumn, gather_one_by_one
from relay.intake import message_kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relay.arrow.byte_column import Gather


def column(
    values: Sequence[bytes | None], parts: int, gather: Gather = gather_one_by_one
) -> ByteColumn:
    """Of every second value, extended some values at a time."""
    memory = np.frombuffer(b"".join(filter(None, values)) + b"\0", np.uint8)
    sizes = np.array([NULL if one is None else len(one) for one in values], np.int64)
    ends = np.cumsum(np.maximum(sizes, 0))
    places = memory.ctypes.data + ends - np.maximum(sizes, 0)
    places[sizes == NULL] = 0
    made = ByteColumn()
    for low in range(0, len(values), parts):
        made.extend(places, sizes, np.arange(low, min(low + parts, len(values)))[::2], gather)
    return made


@pytest.mark.parametrize("gather", [message_kernel.gather, gather_one_by_one])
@pytest.mark.parametrize("seed", range(20))
def test_values_are_copied_as_they_are(
    gather: Gather, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Empty ones, nulls, some larger than a piece, and as many as need many pieces."""
    chance = random.Random(seed)
    monkeypatch.setattr(byte_column, "_MOST_BITS", chance.choice([10, 11, 19]))
    values = [
        chance.choice([None, b"", chance.randbytes(chance.randrange(1, chance.choice([9, 3_000])))])
        for _ in range(chance.randrange(1, 400))
    ]
    parts = 2 * chance.randrange(1, 50)
    made = column(values, parts, gather)
    assert made.array().to_pylist() == values[::2]
    assert [made[at] for at in range(len(made))] == values[::2]
    assert made.bytes == sum(len(one or b"") for one in values[::2])
    first = chance.randrange(len(made) + 1)
    assert made.size(first) == sum(len(one or b"") for one in values[::2][:first])
    gone = chance.randrange(first + 1)
    made.drop(gone)
    assert made.size(first - gone) == sum(len(one or b"") for one in values[::2][gone:first])


@pytest.mark.parametrize("seed", range(20))
def test_dropped_values_are_gone_and_others_come_behind_what_is_left(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(byte_column, "_MOST_BITS", chance.choice([10, 11]))
    values = [
        chance.choice([None, b"", chance.randbytes(chance.randrange(1, chance.choice([9, 3_000])))])
        for _ in range(400)
    ]
    made, left = column(values, 40), values[::2]
    places = np.frombuffer(b"new", np.uint8).ctypes.data + np.arange(2)
    while len(left) > 1:
        gone = chance.randrange(1, min(len(left), 60))
        made.drop(gone)
        left = [*left[gone:], b"ne", b"ew"] if chance.random() < 0.5 else left[gone:]
        if left[-1] == b"ew" and len(left) > len(made):
            made.extend(places, np.array([2, 2]), np.arange(2))
        assert made.array().to_pylist() == left
        assert [made[at] for at in range(len(made))] == left


def test_what_is_dropped_takes_no_memory() -> None:
    """But for the piece that the first one left is in."""
    made = column([b"x" * 9_000] * 2_000, 8)
    made.drop(990)
    assert len(made) == 10
    assert made.bytes < 9_000 * 10 + (1 << 19)


def test_pieces_grow_with_the_column_and_little_is_in_vain() -> None:
    """Room for less than a piece more than there is, and no more pieces than that takes."""
    made = column([b"x" * 9_000] * 2_000, 8)

    pieces = made.array().chunks
    sizes = [piece.buffers()[2].size for piece in pieces]
    assert made.bytes == 9_000_000
    assert sizes == sorted(sizes)
    assert sizes[0] == 1 << 16
    assert sizes[-1] == 1 << 19
    assert sum(sizes) < made.bytes + 9_000 * len(sizes) + sizes[-1]


def test_where_little_comes_nothing_compiled_is_loaded() -> None:
    """numba costs a relay 0.5 s and 120 MB: a process that only holds some messages has none."""
    program = """
import sys
import numpy as np
import relay.process.loop
from relay.arrow.byte_column import ByteColumn
column = ByteColumn()
held = np.frombuffer(b"abc", np.uint8)
column.extend(np.array([held.ctypes.data]), np.array([3]), np.array([0]))
assert column[0] == b"abc"
assert "numba" not in sys.modules, "loaded"
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
