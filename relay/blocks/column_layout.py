"""Columns as they are in a chunk: less of what compression cannot shrink.

Receives a record batch, gives for any stretch of it up to three that hold the same: `heads`, of one
row, `rows`, of as many as the stretch, and the columns that are written as they are. A column that
is in `rows` alone is as it was. Of one that is in both, the field in `heads` says what it is:

- text or bytes: `heads` has all its bytes, `rows` the size of each value;
- whole numbers: `rows` has what each adds to the one before it, modulo 2 to the width of the
  column, `heads` what the first adds to.

Arrow places texts by offsets of 32 bits, which only grow, so that LZ4 finds nothing that repeats
in them; and so it is with times and numbers that are counted up. Sizes and steps mostly fit into
a byte, and repeat. Of the rows of tests.bench (10 columns, three of them texts) LZ4 made 39.9
bytes each, in 68 ns; so it makes 20.9, in 45.

Random numbers (keys of other systems, hashes, measurements) keep LZ4 busy for nothing: two such
columns of ten took a third of the time in which it compressed the other eight (11 of 35 ns a row)
and became smaller by 3 %. They are taken out of the rows, where a column of Arrow's null type says
where each belongs; a table has no column of that type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from relay.arrow.array_memory import bits, buffer, offsets_of

Integers = npt.NDArray[Any]


Column: TypeAlias = Any
"""An Arrow array: its type stubs know neither buffers nor what numpy makes of them."""
Head: TypeAlias = Callable[[int, int], Column]
"""Gives the head of a stretch: its first row, and how many there are."""

_SIZES = ((np.uint8, 2**8), (np.uint16, 2**16), (np.uint32, 2**32))
"""Types, and the first size that does not fit."""
_STEPS = ((np.int8, 1, 2**7), (np.int16, 2, 2**15), (np.int32, 4, 2**31))
"""Types, their bytes, and the first step upwards that does not fit."""
_TRIED = 256
"""Steps that are looked at before all of them: most columns show there that theirs are large."""
_LEAST_BYTES = 4
"""Narrower numbers are not worth it: they are few bytes, and mostly repeat."""
_TRIED_BYTES = 16_384
"""Of a column, to judge it by; LZ4 finds repetitions up to four times as far."""
_WORTH = 0.9
"""Compressed to uncompressed size from which a column is taken out."""
_MARK = {b"part": b"plain"}
"""Metadata of the stream that holds what was taken out."""


class Apart:
    """The columns of a batch of at least one row, parted once for all its stretches.

    Attributes:
        rows: of the whole batch; it is the batch itself where no column could be parted.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._heads: list[tuple[pa.Field[Any], Head]] = []
        rows: list[tuple[pa.Field[Any], Column]] = []
        for field, column in zip(batch.schema, batch.columns, strict=True):
            parted = _take_apart(field.type, column)
            if parted is None:
                rows.append((field, column))
            else:
                head, rest = parted
                self._heads.append((field, head))
                rows.append((pa.field(field.name, rest.type), rest))
        self.rows = _batch(rows) if self._heads else batch

    def heads(self, first: int, count: int) -> pa.RecordBatch | None:
        """Return the heads of a stretch of the rows; None where every column is as it was."""
        heads = [(field, head(first, count)) for field, head in self._heads]
        return _batch(heads) if heads else None


def together(heads: pa.RecordBatch, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the stretch of the batch that these are of.

    Raises:
        ValueError: these two do not belong together.
    """
    unknown = set(heads.schema.names) - set(rows.schema.names)
    if heads.num_rows != 1 or unknown:
        raise ValueError(
            f"the block has {heads.num_rows} message heads, and no rows for columns "
            f"{sorted(unknown)}"
        )
    columns = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        at = heads.schema.get_field_index(field.name)
        if at < 0:
            columns.append((field, column))
        else:
            whole = heads.schema.field(at)
            columns.append((whole, _join(whole.type, heads.column(at), column)))
    return _batch(columns)


def take_out(rows: pa.RecordBatch, codec: pa.Codec) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Return the batch without columns that `codec` would not shrink, and these; None: none."""
    fields = list(zip(rows.schema, rows.columns, strict=True))
    plain = [_is_plain(column, codec) for column in rows.columns]
    if not any(plain):
        return rows, None
    taken = _batch([field for field, out in zip(fields, plain, strict=True) if out])
    left = [
        (pa.field(field.name, pa.null()), pa.nulls(rows.num_rows)) if out else (field, column)
        for (field, column), out in zip(fields, plain, strict=True)
    ]
    return _batch(left), taken.replace_schema_metadata(_MARK)


def is_taken_out(schema: pa.Schema) -> bool:
    """Return whether a stream with this schema holds what was taken out."""
    return schema.metadata == _MARK


def put_back(rows: pa.RecordBatch, taken: pa.RecordBatch) -> pa.RecordBatch:
    """Return what `take_out` was given.

    Raises:
        ValueError: these two do not belong together.
    """
    missing = [field.name for field in rows.schema if pa.types.is_null(field.type)]
    if missing != taken.schema.names or rows.num_rows != taken.num_rows:
        raise ValueError(
            f"the block has {rows.num_rows} rows without columns {missing}, and {taken.num_rows} "
            f"rows of columns {taken.schema.names}"
        )
    back = {field.name: (field, taken.column(field.name)) for field in taken.schema}
    columns = zip(rows.schema, rows.columns, strict=True)
    return _batch([back.get(field.name, (field, column)) for field, column in columns])


def _is_plain(column: Column, codec: pa.Codec) -> bool:
    kind = column.type
    is_number = pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
    if not (is_number or pa.types.is_fixed_size_binary(kind)):
        return False
    if kind.bit_width < 8 * _LEAST_BYTES:
        return False
    width = kind.bit_width // 8
    first, size = column.offset * width, min(len(column) * width, _TRIED_BYTES)
    tried = column.buffers()[1].slice(first, size)
    return bool(codec.compress(tried).size > _WORTH * size)


def _batch(columns: list[tuple[pa.Field[Any], Column]]) -> pa.RecordBatch:
    schema = pa.schema([field for field, _ in columns])
    return pa.RecordBatch.from_arrays([column for _, column in columns], schema=schema)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_binary(kind)


def _take_apart(kind: pa.DataType, column: Column) -> tuple[Head, Column] | None:
    if _is_text(kind):
        return _text(kind, column)
    if pa.types.is_integer(kind) and kind.bit_width >= 8 * _LEAST_BYTES and not column.null_count:
        return _counted(kind, column)
    return None


def _text(kind: pa.DataType, column: Column) -> tuple[Head, Column]:
    """All bytes, and sizes; a null keeps what lies behind it, which is mostly nothing."""
    offsets, data = offsets_of(column), column.buffers()[2]
    sizes = offsets[1:] - offsets[:-1]
    most = int(np.maximum.reduce(sizes))
    sizes = sizes.astype(next(narrow for narrow, beyond in _SIZES if most < beyond))
    valid = _validity(column) if column.null_count else None

    def head(first: int, count: int) -> Column:
        begin, end = int(offsets[first]), int(offsets[first + count])
        bounds = buffer(np.array([0, end - begin], np.int32))
        text = buffer(b"") if data is None else data.slice(begin, end - begin)
        return pa.Array.from_buffers(kind, 1, [None, bounds, text], 0)

    return head, _numbers(sizes, valid, column.null_count)


def _validity(column: Column) -> pa.Buffer:
    """A bit for each value, from the first on: as it lies in memory where that begins a byte."""
    given: pa.Buffer = column.buffers()[0]
    if column.offset % 8 == 0:
        return given.slice(column.offset // 8)
    return bits(column.is_valid().to_numpy(zero_copy_only=False))


def _counted(kind: pa.DataType, column: Column) -> tuple[Head, Column] | None:
    """The number before the first, and steps; None where one needs as many bits as the numbers."""
    width = kind.bit_width // 8
    values = np.frombuffer(column.buffers()[1], f"u{width}")
    values = values[column.offset : column.offset + len(column)]
    if _narrowest(_differences(values[: _TRIED + 1]), width) is None:
        return None
    steps = _differences(values)
    narrow = _narrowest(steps, width)
    if narrow is None:
        return None
    kept = np.empty(len(values), narrow)
    kept[0], kept[1:] = 0, steps

    def head(first: int, _: int) -> Column:
        one = slice(first, first + 1)
        before = values[one] - kept[one].astype(f"i{width}").view(values.dtype)
        return pa.Array.from_buffers(kind, 1, [None, buffer(before)], 0)

    return head, _numbers(kept)


def _differences(values: Integers) -> Integers:
    """Of unsigned numbers, modulo 2 to their width, as signed ones."""
    steps: Integers = values[1:] - values[:-1]
    return steps.view(f"i{values.itemsize}")


def _narrowest(steps: Integers, width: int) -> Any:
    """The narrowest type below `width` bytes that holds all of these steps; None: there is none."""
    least, most = np.minimum.reduce(steps, initial=0), np.maximum.reduce(steps, initial=0)
    for narrow, size, beyond in _STEPS:
        if size < width and -beyond <= least and most < beyond:
            return narrow
    return None


def _numbers(values: Integers, valid: pa.Buffer | None = None, nulls: int = 0) -> Column:
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [valid, buffer(values)], nulls)


def _join(kind: pa.DataType, head: Column, rest: Column) -> Column:
    """The column of a head and its rows, as they were read from a stream."""
    valid, numbers = rest.buffers()
    given = np.frombuffer(numbers or b"", rest.type.to_pandas_dtype())[: len(rest)]
    if not _is_text(kind):
        return _add_up(kind, head, given)
    _, bounds, text = head.buffers()
    size, sizes = int(np.frombuffer(bounds, np.int32)[1]), int(given.sum(dtype=np.int64))
    if sizes != size:
        raise ValueError(f"values of {sizes} bytes have {size}")
    offsets = np.zeros(len(given) + 1, np.int32)
    np.cumsum(given, out=offsets[1:])
    buffers = [valid, buffer(offsets), text]
    return pa.Array.from_buffers(kind, len(given), buffers, rest.null_count)


def _add_up(kind: pa.DataType, head: Column, steps: Integers) -> Column:
    width = kind.bit_width // 8
    values = steps.astype(f"i{width}").view(f"u{width}")
    values[:1] += np.frombuffer(head.buffers()[1], f"u{width}")[:1]
    np.cumsum(values, out=values)
    return pa.Array.from_buffers(kind, len(values), [None, buffer(values)], 0)
