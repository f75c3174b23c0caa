"""Columns of a chunk that compression would not shrink, set aside to be written as they are.

Receives record batches and a codec, gives two for one, and one for two. Random numbers (keys of
other systems, hashes, measurements) keep LZ4 busy for nothing: two such columns of ten took a
third of the time in which it compressed the other eight (11 of 35 ns a row of tests.bench) and
became smaller by 3 %.

In the rows stands a column of Arrow's null type for each that was set aside, which says where it
belongs; a table has no column of that type.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import pyarrow as pa

Column: TypeAlias = Any
"""An Arrow array: its type stubs know no buffers."""

_LEAST_BITS = 32
"""Narrower numbers are few bytes, and mostly repeat."""
_TRIED_BYTES = 16_384
"""Of a column, to judge it by; LZ4 finds repetitions up to four times as far."""
_WORTH = 0.9
"""Compressed to uncompressed size from which a column is set aside."""
_MARK: dict[bytes | str, bytes | str] = {b"part": b"plain"}


def take_out(rows: pa.RecordBatch, codec: pa.Codec) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Return the batch without columns that `codec` would not shrink, and these; None: none."""
    found = [at for at, column in enumerate(rows.columns) if _is_plain(column, codec)]
    if not found:
        return rows, None
    fields, columns = list(rows.schema), list(rows.columns)
    schema = pa.schema([fields[at] for at in found], metadata=_MARK)
    taken_out = pa.RecordBatch.from_arrays([columns[at] for at in found], schema=schema)
    for at in found:
        fields[at], columns[at] = pa.field(fields[at].name, pa.null()), pa.nulls(rows.num_rows)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)), taken_out


def is_taken_out(schema: pa.Schema) -> bool:
    """Return whether a stream with this schema holds what was set aside."""
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
    fields, columns = list(rows.schema), list(rows.columns)
    for field, column in zip(taken.schema, taken.columns, strict=True):
        at = rows.schema.get_field_index(field.name)
        fields[at], columns[at] = field, column
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _is_plain(column: Column, codec: pa.Codec) -> bool:
    kind = column.type
    is_number = pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
    if not (is_number or pa.types.is_fixed_size_binary(kind)) or kind.bit_width < _LEAST_BITS:
        return False
    width = kind.bit_width // 8
    first, size = column.offset * width, min(len(column) * width, _TRIED_BYTES)
    tried = column.buffers()[1].slice(first, size)
    return bool(codec.compress(tried).size > _WORTH * size)
