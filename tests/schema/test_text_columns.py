"""Text that is decoded as bytes is judged as protobuf judges text."""

from __future__ import annotations

import pyarrow as pa
import pytest

from relay.rows.row_codec import as_bytes, as_text


@pytest.mark.parametrize(
    "values", [[], [b""], [b"plain", None, b""], ["naïve 中文 🙂".encode(), None], [None, None]]
)
def test_utf8_is_the_same_text(values: list[bytes | None]) -> None:
    """With nulls, and also as a part of a longer array."""
    wanted = [None if value is None else value.decode() for value in values]
    array = pa.array(values, pa.binary())
    part = pa.array([b"\xff", *values, b"\xff"], pa.binary()).slice(1, len(values))

    assert as_text(array).to_pylist() == wanted
    assert as_text(part).to_pylist() == wanted
    assert as_bytes(as_text(array)).equals(array)


@pytest.mark.parametrize(
    "bad", [b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf5\x80\x80\x80"]
)
def test_what_is_not_utf8_is_an_error(bad: bytes) -> None:
    """A byte of no text, one cut short, a surrogate, an overlong form, beyond Unicode."""
    with pytest.raises(ValueError, match="not UTF-8"):
        as_text(pa.array([b"good", bad], pa.binary()))


def test_a_character_cut_in_two_does_not_join_its_neighbour() -> None:
    """Each value by itself: the halves of a character lie side by side in memory."""
    with pytest.raises(ValueError, match="not UTF-8"):
        as_text(pa.array([b"\xc3", b"\xa9"], pa.binary()))
