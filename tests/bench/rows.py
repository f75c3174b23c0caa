"""The rows that every contender moves: five tables of ten columns, about 82 bytes each.

Receives a range of row numbers, gives Arrow columns and source messages with the
field numbers that the relay's registry will give these tables. Never talks to a
server, but for `create_tables`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relay import schema
from relay.rowmessage import RowCodec

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

DATABASE = "bench"
TABLES = tuple(
    f"{DATABASE}.{name}" for name in ("orders", "payments", "visits", "parcels", "refunds")
)
COLUMNS = (
    schema.ColumnDef("event", "UInt64"),
    schema.ColumnDef("account", "Int64"),
    schema.ColumnDef("at", "DateTime64(3)"),
    schema.ColumnDef("day", "Date"),
    schema.ColumnDef("kind", "LowCardinality(String)"),
    schema.ColumnDef("name", "String"),
    schema.ColumnDef("amount", "Float64"),
    schema.ColumnDef("quantity", "Int32"),
    schema.ColumnDef("ok", "Bool"),
    schema.ColumnDef("note", "Nullable(String)"),
)
_KINDS = pa.array(["created", "changed", "shipped", "returned", "closed"])
_NAMES = pa.array([f"customer {n:06d}" for n in range(2000)])
_NOTES = pa.array([f"left with neighbour no. {n:05d}" for n in range(500)] + [None] * 250)
_FIRST_TICK = 1_700_000_000_000  # milliseconds since 1970: DateTime64(3)
_FIRST_DAY = _FIRST_TICK // 86_400_000


def create_tables(client: Client, *, block_column: bool = False) -> None:
    """The tables, empty, with a window in which ClickHouse knows a token again."""
    client.command(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
    columns = ", ".join(f"{column.name} {column.type}" for column in COLUMNS)
    if block_column:
        columns += ", _block String"
    for table in TABLES:
        client.command(f"DROP TABLE IF EXISTS {table} SYNC")
        client.command(
            f"CREATE TABLE {table} ({columns}) ENGINE = MergeTree ORDER BY event "
            "SETTINGS non_replicated_deduplication_window = 10000"
        )


def codec(table: str) -> RowCodec:
    """Of the table's row message as the registry numbers it at first sight."""
    first = schema.evolve(None, table, "", COLUMNS)
    assert first is not None, "a new table always has a first schema"
    return RowCodec(first)


def columns(first: int, count: int) -> pa.RecordBatch:
    """Rows `first` to `first + count` in the protobuf-side types; the same each time."""
    number = np.arange(first, first + count, dtype=np.int64)
    mixed = (number * 2_654_435_761) & 0x7FFF_FFFF  # Knuth's multiplicative hash: spreads values
    return pa.RecordBatch.from_arrays(
        [
            pa.array(number.astype(np.uint64)),
            pa.array(mixed << 3),
            pa.array(_FIRST_TICK + number),
            pa.array((_FIRST_DAY + number // 1_000_000).astype(np.int32)),
            _KINDS.take(pa.array(mixed % len(_KINDS))),
            _NAMES.take(pa.array(mixed % len(_NAMES))),
            pa.array(mixed / 100.0),
            pa.array((mixed % 90).astype(np.int32)),
            pa.array(mixed % 3 == 0),
            _NOTES.take(pa.array(mixed % len(_NOTES))),
        ],
        names=[column.name for column in COLUMNS],
    )


def messages(of: RowCodec, first: int, count: int, per_message: int) -> list[bytes]:
    """Rows `first` to `first + count` as RowBatch values of `per_message` rows each.

    Each row gets its tag and length before it; then the values are cut out of one
    long buffer at every `per_message`-th row, no Python per row.
    """
    encoded = of.encode_rows(columns(first, count))
    lengths = pc.binary_length(encoded)
    longest = int(cast("Any", pc.max(lengths)).as_py())
    prefixes = pa.array([b"\x0a" + _varint(n) for n in range(longest + 1)], pa.binary())
    # pyarrow's stubs know no mix of arrays and scalars here; the last argument is the separator.
    join: Any = pc.binary_join_element_wise
    rows = join(prefixes.take(lengths), encoded, pa.scalar(b"", pa.binary()))
    bounds = np.frombuffer(rows.buffers()[1], np.int32)[rows.offset : rows.offset + count + 1]
    cuts = np.append(bounds[:-1:per_message], bounds[-1]).astype(np.int32)
    values = pa.Array.from_buffers(
        pa.binary(), len(cuts) - 1, [None, pa.py_buffer(cuts.tobytes()), rows.buffers()[2]]
    )
    return cast("list[bytes]", values.to_pylist())


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
