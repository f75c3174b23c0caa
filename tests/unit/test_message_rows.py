"""Which message each row of a block came from: what is written is read back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.blocks import message_rows
from relay.blocks.message_rows import MessageRows


@given(
    st.integers(0, 2**62),
    st.lists(st.tuples(st.integers(1, 2**40), st.integers(1, 2**31)), min_size=1, max_size=50),
)
def test_what_is_written_is_read_back(first: int, messages: list[tuple[int, int]]) -> None:
    steps, rows = np.array(messages, np.int64).T
    offsets = first + np.cumsum(steps) - steps[0]
    read = message_rows.decode(message_rows.encode(MessageRows(offsets, rows)))
    np.testing.assert_array_equal(read.offsets, offsets)
    np.testing.assert_array_equal(read.rows, rows)


def test_ends_of_the_rows() -> None:
    assert MessageRows(np.array([4, 9]), np.array([3, 2])).ends.tolist() == [3, 5]


def test_messages_one_behind_the_other_take_few_bytes() -> None:
    many = MessageRows(np.arange(7, 100_007), np.ones(100_000, np.int64))
    assert len(message_rows.encode(many)) < 1_500


def test_no_messages() -> None:
    nothing = np.zeros(0, np.int64)
    assert message_rows.encode(MessageRows(nothing, nothing)) == b""


@pytest.mark.parametrize("value", [b"", b"text", message_rows.zlib.compress(b"short")])
def test_anything_else_is_told(value: bytes) -> None:
    with pytest.raises(ValueError, match="not a list of a block's messages"):
        message_rows.decode(value)
