"""What a message that is none of ours is said to look like."""

from __future__ import annotations

import pytest

from relay.intake.foreign_formats import explained, foreign, of_headers, of_value
from relay.schema.dead_reason import DeadKind, DeadReason
from tests.broker.pipeline import row_batch


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"id": 1}', "looks like JSON"),
        (b'\n\t [{"id": 1}]', "looks like JSON"),
        (b'\xef\xbb\xbf{"id": 1}', "looks like JSON"),
        (b'{"id": "' + b"\xc3\xa9" * 200 + b'"}', "looks like JSON"),
        (b'{"' + b"\xc3\xa9" * 200 + b'"}', "looks like JSON"),
        (b"\x00\x00\x00\x00\x07\x08\x01", "looks like Confluent's wire format (schema id 7)"),
        (b"\x00\x00\x01\x00\x00", "looks like Confluent's wire format (schema id 65536)"),
        (b"Obj\x01\x04\x14avro.codec", "looks like an Avro container file"),
        (b"hello, world\r\n", "looks like plain text"),
        (b"{\x00\x01\x02", "may be protobuf"),
        (b"\x00\x01", "may be protobuf"),
        (row_batch([1]), "may be protobuf"),
        (b"", "empty"),
        (None, "none (a tombstone)"),
    ],
)
def test_a_value_is_told_by_its_first_bytes(value: bytes | None, expected: str) -> None:
    assert of_value(value) == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], "it has no header (of more than 100,000 headers the client library reads none)"),
        ([("type", b"x"), ("id", None), ("type", b"y")], "its headers are 'type', 'id'"),
        (
            [(f"h{at}", b"") for at in range(7)],
            "its headers are 'h0', 'h1', 'h2', 'h3', 'h4' and 2 more",
        ),
        ([("table", b"a.b"), ("table", b"a.b")], "it has header 'table' 2 times"),
        (
            [("table", b"gapminder"), ("id", b"1")],
            "its header 'table' is 'gapminder', a name without its database",
        ),
        ([("table", b"a.b.c")], "its header 'table' is 'a.b.c'"),
        ([("table", b"\xff\xfe")], "its header 'table' is not UTF-8 (bytes ff fe)"),
        ([("table", None)], "its header 'table' is null"),
        ([("table", b"")], "its header 'table' is ''"),
        ([("table", b"x." * 100)], f"its header 'table' is '{'x.' * 30}…'"),
    ],
)
def test_headers_that_name_no_table_are_told(
    headers: list[tuple[str, bytes | None]], expected: str
) -> None:
    assert of_headers(headers) == expected


def test_a_reason_says_what_the_message_looks_like_where_that_helps() -> None:
    """A message of a known table whose value is no known format keeps its reason."""
    none = DeadReason(DeadKind.NO_TABLE, "no header")
    found = explained(none, b"[]", [("id", b"")])
    assert found.text == "no header; its value looks like JSON; its headers are 'id'"
    assert found.kind == DeadKind.NO_TABLE
    found = explained(none, None, [("id", b"")])
    assert found.text == "no header; its value is null (a tombstone); its headers are 'id'"
    assert explained(none, b"", []).text.startswith("no header; its value is empty; ")
    other = DeadReason(DeadKind.NOT_A_BATCH, "not a RowBatch")
    assert explained(other, b"{}", None).text == "not a RowBatch; its value looks like JSON"
    for reason, value in (
        (DeadReason(DeadKind.DOES_NOT_FIT, "row 1: 300", "a"), row_batch([300])),
        (DeadReason(DeadKind.NULL_VALUE, "null value"), None),
    ):
        assert explained(reason, value, None) is reason


def test_no_rows_look_like_another_format() -> None:
    """Field numbers from 1 on, as a bare row begins; tags of fields never look like those."""
    for number in range(1, 40):
        for wire in (0, 1, 2, 5):
            tag = number << 3 | wire
            head = bytes([tag]) if tag < 128 else bytes([tag & 127 | 128, tag >> 7])
            assert foreign(head + bytes(8)) == ""
