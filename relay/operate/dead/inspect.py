"""Shows a dead letter's value: its bytes, and its rows as far as they can be decoded.

Where the relay refuses a message whole, this shows whatever can be read of it. Pure.
"""

# pure

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from google.protobuf import json_format, text_format, unknown_fields
from google.protobuf.message import DecodeError, Message

from relay.operate.dead.wire import WireError, WireField, fields
from relay.rows.decode import decode
from relay.rows.row_codec import RowCodec

_LINE = 16
_LENGTH_DELIMITED = 2


@dataclass(frozen=True, slots=True)
class InspectedRow:
    """One row as far as it can be read.

    Attributes:
        text: its fields in protobuf's text format, with those that the table does not know.
        fields: by name, in the types of protobuf's JSON mapping.
        unknown: numbers of the fields that the table does not know.
        problem: why the relay does not take it; empty where it would.
    """

    text: str
    fields: dict[str, Any]
    unknown: list[int]
    problem: str


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a message, and what is wrong with the message around them."""

    rows: list[InspectedRow]
    problem: str = ""


def hexdump(data: bytes, most: int) -> list[str]:
    """Return lines of offset, 16 bytes and their ASCII characters, of the first `most` bytes."""
    lines = []
    for at in range(0, min(len(data), most), _LINE):
        piece = data[at : min(at + _LINE, most)]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
        lines.append(f"{at:08x}  {piece.hex(' '):<47}  |{shown}|")
    if len(data) > most:
        lines.append(f"... {len(data) - most:,} more of {len(data):,} bytes")
    return lines


def rows_of(value: bytes | None, codec: RowCodec, framing: str) -> Rows:
    """Return the rows of a source message's value, as the codec's table may have them.

    Framing is "batch" or "row", as in settings.source.
    """
    if value is None:
        return Rows([], "null value")
    if framing == "row":
        return Rows([_row(value, codec)])
    if not value:
        return Rows([], "empty batch")
    row_fields: list[WireField] = []
    problem = ""
    try:
        for field in fields(value):
            if (field.number, field.wire_type) == (1, _LENGTH_DELIMITED):
                row_fields.append(field)
            elif not problem:
                problem = f"byte {field.start}: field {field.number} is no row of a RowBatch"
    except WireError as error:
        problem = problem or str(error)
    return Rows([_row(value[field.payload : field.end], codec) for field in row_fields], problem)


def _row(data: bytes, codec: RowCodec) -> InspectedRow:
    bad = decode(pa.chunked_array([[data]], pa.binary()), codec, "row").bad
    message = _as_far_as_it_parses(data, codec)
    unknown: Any = unknown_fields.UnknownFieldSet(message)  # iterable, whatever its stub says
    return InspectedRow(
        text_format.MessageToString(
            message, as_utf8=True, as_one_line=True, print_unknown_fields=True
        ),
        json_format.MessageToDict(message, preserving_proto_field_name=True),
        sorted({field.field_number for field in unknown}),
        bad[0].reason.text.removeprefix("row 1: ").removeprefix("row 1, ") if bad else "",
    )


def _as_far_as_it_parses(data: bytes, codec: RowCodec) -> Message:
    """The whole row, or its longest part from the beginning that ends between two fields."""
    ends = [0]
    try:
        ends += [field.end for field in fields(data)]
    except WireError as error:
        ends.append(error.at)
    for end in (len(data), *reversed(ends)):
        try:
            return codec.message_class.FromString(data[:end])
        except DecodeError:
            continue
    raise AssertionError("an empty message always parses")
