"""Messages made to burst a reader's memory or stack, by kind, of about a given size in bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.broker.pipeline import length_prefixed, varint

COLUMNS = {
    "id": "Int64",
    "name": "String",
    "tags": "Array(String)",
    "nested": "Array(Array(Array(UInt8)))",
    "doc": "JSON",
    "numbers": "Array(UInt8)",
}
"""In the order of their field numbers."""


def field(number: int, data: bytes) -> bytes:
    """A field of bytes, text or message."""
    return varint(number << 3 | 2) + length_prefixed(data)


def batch(row: bytes) -> bytes:
    return field(1, row)


def empty_rows(size: int) -> bytes:
    """Two bytes a row: as many rows as a message can hold."""
    return b"\x0a\x00" * (size // 2)


def empty_elements(size: int) -> bytes:
    """A row whose list has an element for each two bytes."""
    return batch(field(3, b"") * (size // 2))


def packed_numbers(size: int) -> bytes:
    """A row whose list has an element for each byte."""
    return batch(field(6, b"\x01" * size))


def nested_lists(size: int) -> bytes:
    """Lists of lists of lists, all of them empty."""
    return batch(field(4, field(1, b"") * (size // 2)))


def deep_unknown(size: int) -> bytes:
    """Messages within messages, deeper than any stack; of a field that the table lacks."""
    del size
    data = b""
    for _ in range(20_000):
        data = field(77, data)
    return batch(data)


def deep_groups(size: int) -> bytes:
    """Groups, which open and never close."""
    return batch(varint(77 << 3 | 3) * (size // 2))


def deep_json(size: int) -> bytes:
    """A document that is all opening brackets."""
    return batch(field(5, b'{"a":' * (size // 5)))


def deep_json_that_closes(size: int) -> bytes:
    """One that is valid, and deeper than parsers go."""
    depth = size // 6
    return batch(field(5, b'{"a":' * depth + b"1" + b"}" * depth))


def wide_json(size: int) -> bytes:
    """Very many paths in one document."""
    paths = ",".join(f'"{n:x}":0' for n in range(size // 10))
    return batch(field(5, f"{{{paths}}}".encode()))


def absurd_length(size: int) -> bytes:
    """A text that says it is 2**62 bytes long."""
    return batch(varint(2 << 3 | 2) + varint(1 << 62) + b"x" * size)


def unknown_fields(size: int) -> bytes:
    """Many different fields that the table never had."""
    return batch(b"".join(varint(number << 3) + b"\x00" for number in range(100, 100 + size // 8)))


MADE: Mapping[str, Callable[[int], bytes]] = {
    made.__name__: made
    for made in (
        empty_elements,
        packed_numbers,
        nested_lists,
        deep_unknown,
        deep_groups,
        deep_json,
        deep_json_that_closes,
        wide_json,
        absurd_length,
        unknown_fields,
        empty_rows,
    )
}
