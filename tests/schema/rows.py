"""Rows and messages for tests, made with the Python protobuf runtime: not the code under test."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from google.protobuf.internal.encoder import _VarintBytes

from relay.records_pb2 import TableSchema
from relay.rows.row_codec import RowCodec
from relay.schema.evolution import ColumnDef, evolve
from relay.schema.registry import Versions, fold

if TYPE_CHECKING:
    from collections.abc import Iterable

TABLE = "shop.orders"


def codec_of(columns: dict[str, str] | list[tuple[str, str, str]]) -> RowCodec:
    """Of columns by name and type, or by name, type and default kind."""
    pairs = columns.items() if isinstance(columns, dict) else columns
    schema = evolve(None, TABLE, "uuid-1", [ColumnDef(*column) for column in pairs])
    assert schema is not None
    return RowCodec(schema)


def row(codec: RowCodec, **values: object) -> bytes:
    """One serialized row; None is a field left out."""
    fields = dict(zip(codec.column_names, codec.field_names, strict=True))
    present = {fields[name]: value for name, value in values.items() if value is not None}
    return codec.message_class(**present).SerializeToString()


def row_batch(rows: Iterable[bytes]) -> bytes:
    return b"".join(b"\x0a" + _VarintBytes(len(one)) + one for one in rows)


def binary(values: list[bytes | None]) -> pa.ChunkedArray[Any]:
    """In pieces of one value, two, four and so on, as buffers grow."""
    ends = [2**n - 1 for n in range(len(values).bit_length() + 1)]
    pieces = [pa.array(values[low:high], pa.binary()) for low, high in pairwise(ends)]
    return pa.chunked_array(pieces, pa.binary())


def decode_rows(codec: RowCodec, rows: pa.BinaryArray) -> pa.RecordBatch:
    """Return serialized rows as columns of `codec.wire_schema`."""
    columns = codec.wire_columns(codec.decode_all(rows))
    return pa.RecordBatch.from_arrays(columns, schema=codec.wire_schema)


def versions_of(records: Iterable[TableSchema]) -> Versions:
    """What readers of these records, in this order, know."""
    versions: Versions = {}
    for one in records:
        fold(versions, one)
    return versions
