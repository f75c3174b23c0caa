"""Fits what a transform made into the block's table: columns, types and ranges. Pure.

Receives the transform's rows, the block's and the table's columns, gives rows as the relay
would have written them, with the ClickHouse type of each column in its metadata. Never changes
a value: one that the column cannot hold is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from loader.blocks.transform import CannotTransform
from loader.clickhouse.client import one_line
from relay.schema.types.column_type import (
    CLICKHOUSE_TYPE,
    ColumnType,
    UnsupportedType,
    parse_type,
    recorded_type,
)


def fitted(
    made: pa.RecordBatch, block: pa.RecordBatch, columns: Mapping[str, str], stamp: str
) -> pa.RecordBatch:
    """Return the rows for the INSERT.

    A column that the block has in the same Arrow type keeps its meaning. Any other is the
    table's of that name, in the form that the document `messages` shows for blocks; it is cast
    where Arrow can without loss.

    Args:
        made: by the transform.
        block: its rows before.
        columns: of the table, name to type.
        stamp: the block-id column, which the loader fills.

    Raises:
        CannotTransform: a column is not the table's, of another type, or a value does not fit.
    """
    names = made.schema.names
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise CannotTransform(f"the transform returned column {', '.join(doubled)} twice")
    fields, arrays = [], []
    for field, array in zip(made.schema, made.columns, strict=True):
        if field.name == stamp:
            raise CannotTransform(
                f"the transform returned column {stamp}, which only the loader fills"
            )
        meant, kept = _meant(field, block, columns)
        fitting = _cast(field.name, array, meant)
        if not (kept and fitting.equals(block.column(field.name))):
            _check(field.name, fitting, meant)
        arrays.append(fitting)
        metadata: dict[bytes | str, bytes | str] = {CLICKHOUSE_TYPE: meant.clickhouse.encode()}
        fields.append(pa.field(field.name, fitting.type, metadata=metadata))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _meant(
    field: pa.Field[Any], block: pa.RecordBatch, columns: Mapping[str, str]
) -> tuple[ColumnType, bool]:
    """Return the ClickHouse type of a column as given, and whether it is the block's own."""
    at = block.schema.get_field_index(field.name)
    if at >= 0 and block.schema.field(at).type.equals(field.type):
        return _parsed(field.name, recorded_type(block.schema.field(at))), True
    if field.name not in columns:
        raise CannotTransform(
            f"the transform returned column {field.name}, which the table does not have"
        )
    return _parsed(field.name, columns[field.name]), False


def _parsed(name: str, text: str) -> ColumnType:
    try:
        return parse_type(text)
    except UnsupportedType as error:
        raise CannotTransform(f"column {name}: {error}") from error


def _cast(name: str, array: Any, meant: ColumnType) -> Any:
    if array.type.equals(meant.arrow):
        return array
    try:
        return pc.cast(array, meant.arrow)
    except pa.ArrowException as error:
        raise CannotTransform(
            f"the transform returned column {name} as {array.type}, but {meant.clickhouse} needs "
            f"{meant.arrow}: {one_line(error)}"
        ) from error


def _check(name: str, array: Any, meant: ColumnType) -> None:
    """Refuse values that fit the Arrow type but not the column."""
    if meant.check is None or not meant.wire.equals(array.type):
        return  # the INSERT refuses parts of other types
    bad = meant.check(array)
    if bad is not None and (row := pc.index(bad, value=True).as_py()) >= 0:
        raise CannotTransform(
            f"row {row + 1}, column {name}: {meant.complaint(array[row].as_py())}"
        )
