from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.produce.gathering import cut_long, even_ends, pack, random_ends
from relay.rows.envelope import open_messages


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(st.binary(max_size=300), max_size=60),
    per_message=st.integers(1, 20),
    max_bytes=st.integers(1, 2_000),
    before=st.integers(0, 5),
)
def test_messages_hold_the_rows_in_order(
    rows: list[bytes], per_message: int, max_bytes: int, before: int
) -> None:
    """Packed and opened again, the rows are the same; none is longer than allowed, but one row."""
    array = pa.array([b"other"] * before + rows, pa.binary()).slice(before)
    ends = cut_long(array, even_ends(len(rows), per_message), max_bytes)
    values = pack(array, ends)
    opened = open_messages(values, "batch")
    assert not opened.bad
    assert opened.rows.to_pylist() == rows
    assert opened.counts.tolist() == np.diff(ends, prepend=0).tolist()
    assert max(opened.counts, default=1) <= per_message
    for value, count in zip(values.to_pylist(), opened.counts, strict=True):
        assert len(value) <= max_bytes or count == 1


@given(rows=st.integers(0, 1000), least=st.integers(1, 50), span=st.integers(0, 50))
def test_drawn_sizes_stay_in_their_range(rows: int, least: int, span: int) -> None:
    """Every message has least to most rows, but the last, which takes what is left."""
    ends = random_ends(rows, least, least + span, np.random.default_rng(1))
    sizes = np.diff(ends, prepend=0)
    assert sizes.sum() == rows
    assert all(least <= size <= least + span for size in sizes[:-1])
    assert rows == 0 or 1 <= sizes[-1] <= least + span


def test_a_range_draws_all_its_sizes() -> None:
    """1..200 gives messages of one row and of two hundred."""
    ends = random_ends(300_000, 1, 200, np.random.default_rng(1))
    assert set(np.diff(ends).tolist()) == set(range(1, 201))


@pytest.mark.parametrize(("rows", "sizes"), [(0, []), (1, [1]), (5, [5]), (6, [5, 1])])
def test_even_messages_leave_the_rest_to_the_last(rows: int, sizes: list[int]) -> None:
    """Five rows a message, and no message without rows."""
    assert np.diff(even_ends(rows, 5), prepend=0).tolist() == sizes
