"""Fits what a transform made into the block's table: columns, types and ranges. Pure.

Receives the transform's rows, the block's and the table's columns, gives rows as the relay
would have written them, with the ClickHouse type of each column in its metadata. Never changes
a value: one that the column cannot hold is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from relay.schema.types.exact_cast import decoded_type, exact_cast, other_parts
from relay.schema.types.kind import Nullable, Scalar, TypeKind
from relay.schema.types.nested import Array, Tuple, Wrapped
from relay.schema.types.ticks import base_type, loses_units, ticks
from relay.schema.types.variant import NullableTuple, Variant, holds_null


def fitted(
    made: pa.RecordBatch, block: pa.RecordBatch, columns: Mapping[str, str], stamp: str
) -> pa.RecordBatch:
    """Return for the INSERT what a transform made of a block's rows.

    A column that the block has in the same Arrow type keeps its meaning. Any other is the
    table's of that name, in the form that the document `messages` shows for blocks; it is cast
    where Arrow can without loss. `stamp` is the block-id column, which the loader fills.

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
        return exact_cast(_counted(array, meant), meant.arrow)
    except pa.ArrowException as error:
        raise CannotTransform(
            f"the transform returned column {name} as {array.type}, but {meant.clickhouse} needs "
            f"{meant.arrow}: {one_line(error)}"
        ) from error


def _counted(array: Any, meant: ColumnType) -> Any:
    """Count dates and times in the column's unit; whole numbers count in it already.

    Raises:
        ArrowInvalid: the column holds less than a value says, the times are parts of others, or a
            struct has other parts than the column's.
    """
    if (decoded := decoded_type(array.type)) != array.type:
        array = array.cast(decoded)  # what is encoded is cast as the values are
    if (scalar := meant.scalar) and scalar.unit:
        times = pa.types.is_temporal(array.type)
        return ticks(array, base_type(scalar.text)).cast(scalar.wire) if times else array
    if loses_units(array.type, meant.arrow):
        raise pa.ArrowInvalid("as numbers these dates and times lose their unit")
    if others := other_parts(array.type, meant.arrow):
        raise pa.ArrowInvalid(others)
    return array


def _check(name: str, array: Any, meant: ColumnType) -> None:
    """Refuse values, and parts of values, that fit the Arrow type but not the column."""
    wrong = _wrong_value(meant.kind, array)
    if wrong is not None:
        row, why = wrong
        where = f"row {row + 1}, " if meant.scalar else ""
        raise CannotTransform(f"{where}column {name}: {why}")


def _wrong_value(kind: TypeKind, array: Any) -> tuple[int, str] | None:
    """Return the place and the fault of the first value of a block's array that does not fit."""
    match kind:
        case Nullable(inner=inner) | Wrapped(inner=inner):
            return _wrong_value(inner, array)
        case Array(items=items):
            values, why = array.flatten(), f"a null in {kind.text}"
            return _wrong_null(items, values.is_null(), why) or _wrong_value(items, values)
        case Tuple(names=names, parts=parts):
            for name, part, column in zip(names, parts, array.flatten(), strict=True):
                absent = pc.and_(column.is_null(), array.is_valid())
                why = f"a null in {kind.text}: {name}"
                if wrong := _wrong_null(part, absent, why) or _wrong_value(part, column):
                    return wrong
            return None
        case NullableTuple(inner=inner):
            return _wrong_choice(kind, array, (inner,))
        case Variant(parts=parts):
            return _wrong_choice(kind, array, parts)
    if not isinstance(kind, Scalar) or kind.check is None or not kind.wire.equals(array.type):
        return None  # the block's type holds no more than the column's
    bad = kind.check(array)
    row = -1 if bad is None else pc.index(bad, value=True).as_py()
    return None if row < 0 else (row, kind.complaint(array[row].as_py()))


def _wrong_null(kind: TypeKind, absent: Any, why: str) -> tuple[int, str] | None:
    """Return the place of the first null where the kind holds none: INSERT would make 0 of it.

    A row's own null is not among them: it means the column's DEFAULT.
    """
    row = -1 if holds_null(kind) else pc.index(absent, value=True).as_py()
    return None if row < 0 else (row, why)


def _wrong_choice(kind: TypeKind, array: Any, parts: Sequence[TypeKind]) -> tuple[int, str] | None:
    """Return the same for a struct whose first part says which other one holds the value.

    A number that stands for none of them would be NULL; so is a struct that is null.
    """
    which, *columns = array.flatten()
    known = pc.is_in(which, pa.array(range(len(parts) + 1), which.type))
    row = pc.index(pc.and_(array.is_valid(), pc.invert(known)), value=True).as_py()
    if row >= 0:
        first = array.type.field(0).name
        return row, f"{first} of {kind.text} is {which[row].as_py()}, not 0 to {len(parts)}"
    for number, (part, column) in enumerate(zip(parts, columns, strict=True), 1):
        chosen = column.filter(pc.equal(which, pa.scalar(number, which.type)))
        why = f"a null in {kind.text}: {array.type.field(number).name}"
        if wrong := _wrong_null(part, chosen.is_null(), why) or _wrong_value(part, chosen):
            return wrong
    return None
