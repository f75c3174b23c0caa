"""The rows that every contender moves: by default five tables of ten columns, 82 bytes a row.

Those of 40 columns, 1.5 kB a row, are of tests.bench.large_rows.

Receives a range of row numbers, gives Arrow columns and source messages with the
field numbers that the relay's registry will give these tables. Never talks to a
server, but for `create_tables`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relay.rows.row_codec import RowCodec
from relay.schema import evolution
from tests.bench import large_rows

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client
    from numpy.typing import NDArray

DATABASE = "bench"
TABLES = tuple(
    f"{DATABASE}.{name}" for name in ("orders", "payments", "visits", "parcels", "refunds")
)
COLUMNS = (
    evolution.ColumnDef("event", "UInt64"),
    evolution.ColumnDef("account", "Int64"),
    evolution.ColumnDef("at", "DateTime64(3)"),
    evolution.ColumnDef("day", "Date"),
    evolution.ColumnDef("kind", "LowCardinality(String)"),
    evolution.ColumnDef("name", "String"),
    evolution.ColumnDef("amount", "Float64"),
    evolution.ColumnDef("quantity", "Int32"),
    evolution.ColumnDef("ok", "Bool"),
    evolution.ColumnDef("note", "Nullable(String)"),
)
NARROW, USUAL, LARGE, WIDE = WIDTHS = (3, 10, 40, 100)
"""Columns in a row; a large one is of tests.bench.large_rows, a wide one has each of the ten kinds
ten times."""
_COPIES = WIDE // USUAL
_NARROW_COLUMNS = ("event", "at", "name")
_KINDS = pa.array(["created", "changed", "shipped", "returned", "closed"])
_NAMES = pa.array([f"customer {n:06d}" for n in range(2000)])
_NOTES = pa.array([f"left with neighbour no. {n:05d}" for n in range(500)] + [None] * 250)
_FIRST_TICK = 1_700_000_000_000  # milliseconds since 1970: DateTime64(3)
_FIRST_DAY = _FIRST_TICK // 86_400_000


@dataclass(frozen=True, slots=True)
class Shape:
    """What a bench moves.

    Attributes:
        columns: of a row, one of `WIDTHS`.
        tables: how many.
        skew: the n-th table gets 1/n of the first one's rows; else all get as many.
    """

    columns: int = USUAL
    tables: int = len(TABLES)
    skew: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """`database.table` of each."""
        more = tuple(f"{DATABASE}.table_{n}" for n in range(len(TABLES), self.tables))
        return (TABLES + more)[: self.tables]

    @property
    def definitions(self) -> tuple[evolution.ColumnDef, ...]:
        """Of the columns; those of a wide row are numbered from the second of a kind on."""
        if self.columns == LARGE:
            return large_rows.COLUMNS
        if self.columns == NARROW:
            return tuple(column for column in COLUMNS if column.name in _NARROW_COLUMNS)
        copies = [""] + [f"_{n}" for n in range(2, _COPIES + 1)] * (self.columns == WIDE)
        return tuple(
            evolution.ColumnDef(f"{column.name}{copy}", column.type)
            for copy in copies
            for column in COLUMNS
        )

    @property
    def weights(self) -> list[float]:
        """Of each table's rows among all; together 1."""
        plain = [1 / n if self.skew else 1.0 for n in range(1, self.tables + 1)]
        return [weight / sum(plain) for weight in plain]


DEFAULT = Shape()


def kind(column: str) -> str:
    """Which of the ten kinds a column is, by its name."""
    return column.rstrip("_0123456789")


def create_tables(client: Client, shape: Shape = DEFAULT, *, block_column: bool = False) -> None:
    """The tables, empty, with a window in which ClickHouse knows a token again."""
    client.command(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
    columns = ", ".join(f"{column.name} {column.type}" for column in shape.definitions)
    if block_column:
        columns += ", _block String"
    for table in shape.names:
        client.command(f"DROP TABLE IF EXISTS {table} SYNC")
        client.command(
            f"CREATE TABLE {table} ({columns}) ENGINE = MergeTree ORDER BY event "
            "SETTINGS non_replicated_deduplication_window = 10000"
        )


def codec(table: str, shape: Shape = DEFAULT) -> RowCodec:
    """Of the table's row message as the registry numbers it at first sight."""
    first = evolution.evolve(None, table, "", shape.definitions)
    assert first is not None, "a new table always has a first schema"
    return RowCodec(first)


def columns(
    first: int, count: int, shape: Shape = DEFAULT, at: int | None = None
) -> pa.RecordBatch:
    """Rows `first` to `first + count`, as numbered_columns makes them."""
    return numbered_columns(np.arange(first, first + count, dtype=np.int64), shape, at)


def numbered_columns(
    number: NDArray[np.int64], shape: Shape = DEFAULT, at: int | None = None
) -> pa.RecordBatch:
    """Rows of these numbers in the protobuf-side types.

    All but `at` follows from a row's number, its `event`. `at` is milliseconds since 1970, the
    same for all these rows; without it, it follows from the number too.
    """
    if shape.columns == LARGE:
        return large_rows.columns(number.astype(np.uint64), at)
    mixed = (number * 2_654_435_761) & 0x7FFF_FFFF  # Knuth's multiplicative hash: spreads values
    ticks = _FIRST_TICK + number if at is None else np.full(len(number), at, np.int64)
    made = {
        "event": lambda: pa.array(number.astype(np.uint64)),
        "account": lambda: pa.array(mixed << 3),
        "at": lambda: pa.array(ticks),
        "day": lambda: pa.array((_FIRST_DAY + number // 1_000_000).astype(np.int32)),
        "kind": lambda: _KINDS.take(pa.array(mixed % len(_KINDS))),
        "name": lambda: _NAMES.take(pa.array(mixed % len(_NAMES))),
        "amount": lambda: pa.array(mixed / 100.0),
        "quantity": lambda: pa.array((mixed % 90).astype(np.int32)),
        "ok": lambda: pa.array(mixed % 3 == 0),
        "note": lambda: _NOTES.take(pa.array(mixed % len(_NOTES))),
    }
    wanted = [column.name for column in shape.definitions]
    arrays = {name: made[name]() for name in dict.fromkeys(map(kind, wanted))}
    return pa.RecordBatch.from_arrays([arrays[kind(name)] for name in wanted], names=wanted)


def wrong(shape: Shape) -> str:
    """SQL: whether a row is another than `columns` makes, told from its `event`; not `at`."""
    value = large_rows.values() if shape.columns == LARGE else _values_sql()
    same = [
        f"{column.name} IS NOT DISTINCT FROM {value[kind(column.name)]}"
        for column in shape.definitions
        if kind(column.name) in value
    ]
    return f"NOT ({' AND '.join(same)})"


def _values_sql() -> dict[str, str]:
    """Of each kind but `at`, the value of a row's `event`."""
    # In Int64 the product wraps, as numpy's does; the lower 31 bits are the same.
    mixed = "bitAnd(toInt64(event) * 2654435761, 2147483647)"
    return {
        "event": "event",
        "account": f"{mixed} * 8",
        "day": f"toDate(toUInt16({_FIRST_DAY} + intDiv(event, 1000000)))",
        "kind": f"{_KINDS.to_pylist()}[{mixed} % {len(_KINDS)} + 1]",
        "name": f"concat('customer ', leftPad(toString({mixed} % {len(_NAMES)}), 6, '0'))",
        "amount": f"{mixed} / 100",
        "quantity": f"{mixed} % 90",
        "ok": f"{mixed} % 3 = 0",
        "note": f"if({mixed} % 750 < 500, concat('left with neighbour no. ', "
        f"leftPad(toString({mixed} % 750), 5, '0')), NULL)",
    }


def messages(of: RowCodec, first: int, count: int, per_message: int) -> list[bytes]:
    """Rows `first` to `first + count` as RowBatch values of `per_message` rows each."""
    return values(of, columns(first, count), per_message)


def values(of: RowCodec, batch: pa.RecordBatch, per_message: int) -> list[bytes]:
    """The rows of a batch as RowBatch values of `per_message` rows each.

    Each row gets its tag and length before it; then the values are cut out of one
    long buffer at every `per_message`-th row, no Python per row.
    """
    count = batch.num_rows
    encoded = of.encode_rows(batch)
    lengths = pc.binary_length(encoded)
    longest = int(cast("Any", pc.max(lengths)).as_py())
    prefixes = pa.array([b"\x0a" + _varint(n) for n in range(longest + 1)], pa.binary())
    # pyarrow's stubs know no mix of arrays and scalars here; the last argument is the separator.
    join: Any = pc.binary_join_element_wise
    rows = join(prefixes.take(lengths), encoded, pa.scalar(b"", pa.binary()))
    bounds = np.frombuffer(rows.buffers()[1], np.int32)[rows.offset : rows.offset + count + 1]
    cuts = np.append(bounds[:-1:per_message], bounds[-1]).astype(np.int32)
    cut = pa.Array.from_buffers(
        pa.binary(), len(cuts) - 1, [None, pa.py_buffer(cuts.tobytes()), rows.buffers()[2]]
    )
    return cast("list[bytes]", cut.to_pylist())


def delimited(value: bytes) -> bytes:
    """The message behind its length, as protobuf's own streams and the Kafka engine have it."""
    return _varint(len(value)) + value


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
