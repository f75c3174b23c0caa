"""A look into a dead letter shows what can be read, and where it ends."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.operate.dead.inspect import hexdump, rows_of
from relay.operate.dead.wire import WireError, fields
from tests.schema.rows import codec_of, row, row_batch

CODEC = codec_of({"id": "Int64", "day": "Date", "name": "String"})
GOOD = row(CODEC, id=5, day=3, name="hé")


def test_each_row_says_what_is_wrong_with_it() -> None:
    """Good ones, misfits, rows cut short and text that is none stand beside each other."""
    misfit = row(CODEC, id=6, day=70_000)
    cut = row(CODEC, id=7) + b"\x1a\x09ab"
    no_text = b"\x08\x01\x1a\x02\xff\xfe"
    found = rows_of(row_batch([GOOD, misfit, cut, no_text]), CODEC, "batch")

    assert [one.text for one in found.rows] == [
        'id: 5 day: 3 name: "hé"',
        "id: 6 day: 70000",
        "id: 7",
        "id: 1",
    ]
    assert found.rows[0].fields == {"id": "5", "day": 3, "name": "hé"}
    assert [bool(one.problem) for one in found.rows] == [False, True, True, True]
    assert found.rows[1].problem.startswith("column day: 70000 does not fit Date")
    assert "UTF-8" in found.rows[3].problem
    assert not found.problem


def test_fields_that_the_table_does_not_know_are_numbered() -> None:
    """A producer ahead of the table."""
    assert rows_of(GOOD + b"\x48\x07", CODEC, "row").rows[0].unknown == [9]


@pytest.mark.parametrize(
    ("value", "rows", "problem"),
    [
        (row_batch([GOOD, GOOD])[:-1], 1, "byte 11: field 1 wants 9 bytes, 8 are left"),
        (row_batch([GOOD]) + b"\x12\x01a" + row_batch([GOOD]), 2, "byte 11: field 2 is no row"),
        (b"plain text", 0, "byte 0: field 14 is no row"),
        (b"", 0, "empty batch"),
        (None, 0, "null value"),
    ],
)
def test_what_is_wrong_around_the_rows_is_said(
    value: bytes | None, rows: int, problem: str
) -> None:
    """With the byte where it begins."""
    found = rows_of(value, CODEC, "batch")
    assert len(found.rows) == rows
    assert problem in found.problem


def test_hexdump_shows_bytes_and_characters() -> None:
    """Sixteen a line, and how many are not shown."""
    assert hexdump(b"0123456789abcdef\x00\xff!", 18) == [
        "00000000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  |0123456789abcdef|",
        "00000010  00 ff                                            |..|",
        "... 1 more of 19 bytes",
    ]
    assert hexdump(b"", 10) == []


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_can_be_looked_at(value: bytes) -> None:
    """Nothing makes a look fail, under either framing."""
    for framing in ("batch", "row"):
        found = rows_of(value, CODEC, framing)
        assert found.rows or found.problem


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_the_walk_agrees_with_protobuf_on_whole_messages(value: bytes) -> None:
    """Whatever the protobuf runtime parses, groups aside, is whole for the walk too."""
    try:
        CODEC.message_class.FromString(value)
    except DecodeError:
        return
    if uses_groups(value):
        return
    found = list(fields(value))
    assert [one.start for one in found] == [0, *(one.end for one in found)][: len(found)]
    assert (found[-1].end if found else 0) == len(value)


def uses_groups(value: bytes) -> bool:
    """Proto2's groups, which no producer of row messages has: the walk stops at them."""
    try:
        list(fields(value))
    except WireError as error:
        return value[error.at] & 7 in {3, 4} or "wire type 3" in str(error)
    return False
