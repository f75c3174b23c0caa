"""The fields of a serialized protobuf message, one level deep, without its definition.

Stops where the bytes make no sense, and says at which: a parser only says that they do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


class WireError(ValueError):
    """The bytes are no protobuf from `at` on, where the field begins that cannot be read."""

    def __init__(self, at: int, what: str) -> None:
        super().__init__(f"byte {at}: {what}")
        self.at = at


class WireField(NamedTuple):
    """Where one field lies: tag from `start`, content from `payload` to `end`."""

    start: int
    number: int
    wire_type: int
    payload: int
    end: int


def fields(data: bytes) -> Iterator[WireField]:
    """Yield the fields of a message, in order.

    Raises:
        WireError: at the first field that is not whole.
    """
    at = 0
    while at < len(data):
        field = _field(data, at)
        yield field
        at = field.end


def _field(data: bytes, start: int) -> WireField:
    tag, at = _varint(data, start, start)
    number, wire_type = tag >> 3, tag & 7
    if number == 0:
        raise WireError(start, "field number 0")
    payload = at
    if wire_type == _VARINT:
        _, end = _varint(data, at, start)
    elif wire_type == _LENGTH_DELIMITED:
        length, payload = _varint(data, at, start)
        end = payload + length
    elif wire_type in {_FIXED64, _FIXED32}:
        end = at + (8 if wire_type == _FIXED64 else 4)
    else:
        raise WireError(start, f"field {number} of wire type {wire_type}")
    if end > len(data):
        raise WireError(
            start, f"field {number} wants {end - payload} bytes, {len(data) - payload} are left"
        )
    return WireField(start, number, wire_type, payload, end)


def _varint(data: bytes, at: int, start: int) -> tuple[int, int]:
    """A varint's value and end."""
    value = 0
    for index, byte in enumerate(data[at : at + _LONGEST_VARINT]):
        value |= (byte & 127) << (7 * index)
        if byte < 128:
            return value, at + index + 1
    raise WireError(start, "a varint that does not end")
