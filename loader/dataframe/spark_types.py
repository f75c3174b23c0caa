"""Converts a block's columns to Spark's types, and their values. Pure.

Receives ClickHouse types as blocks carry them, and Arrow arrays; gives Spark types, and arrays as
Spark's Arrow reader takes them. Whole arrays, however deep; no value is changed or cut: what no
Spark type holds is a decimal or its text.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_type

from relay.schema.types.column_type import UnsupportedType, parse_type
from relay.schema.types.kind import Nullable, Scalar, TypeKind
from relay.schema.types.nested import Array, Map, Tuple, Wrapped
from relay.schema.types.type_text import parse_text
from relay.schema.types.variant import NullableTuple, Variant

MICROSECONDS = 6
MOST_DIGITS = 38
"""Of a decimal in Spark."""
_PLAIN: dict[pa.DataType, spark.DataType] = {
    pa.bool_(): spark.BooleanType(),
    pa.int8(): spark.ByteType(),
    pa.int16(): spark.ShortType(),
    pa.int32(): spark.IntegerType(),
    pa.int64(): spark.LongType(),
    pa.uint8(): spark.ShortType(),
    pa.uint16(): spark.IntegerType(),
    pa.uint32(): spark.LongType(),
    pa.uint64(): spark.DecimalType(20, 0),
    pa.float32(): spark.FloatType(),
    pa.float64(): spark.DoubleType(),
    pa.string(): spark.StringType(),
    pa.binary(): spark.BinaryType(),
    pa.date32(): spark.DateType(),
}


def kind_of(column: str, text: str) -> TypeKind:
    """Return what a column of this ClickHouse type is in blocks.

    Raises:
        ValueError: there is no such type here; names the column and the type.
    """
    try:
        return parse_type(text).kind
    except UnsupportedType as error:
        raise ValueError(f"column {column}: {error}") from error


def spark_type(kind: TypeKind) -> spark.DataType:
    """Spark's type of a kind; every part may be null."""
    match kind:
        case Nullable(inner=inner) | Wrapped(inner=inner) | NullableTuple(inner=inner):
            return spark_type(inner)
        case Map(items=Tuple(parts=(key, value))):
            return spark.MapType(spark_type(key), spark_type(value))
        case Array(items=items):
            return spark.ArrayType(spark_type(items))
        case Tuple(names=names, parts=parts) | Variant(names=names, parts=parts):
            pairs = zip(names, parts, strict=True)
            return spark.StructType([spark.StructField(n, spark_type(p)) for n, p in pairs])
    name, arguments = _bare(kind.text)
    if name == "Date":
        return spark.DateType()
    if name == "DateTime" or (name == "DateTime64" and int(arguments[0]) <= MICROSECONDS):
        return spark.TimestampType()
    if name == "Decimal":
        digits, scale = int(arguments[0]), int((*arguments, "0")[1])
        return spark.DecimalType(digits, scale) if digits <= MOST_DIGITS else spark.StringType()
    return _PLAIN[kind.arrow]


def arrow_type(kind: TypeKind) -> pa.DataType:
    """Return the Arrow type that Spark reads a kind in."""
    return to_arrow_type(spark_type(kind), timezone="UTC")


def units(kind: TypeKind) -> list[str]:
    """Return the units of its bare numbers, part by part; empty for values that say what they are.

    Spark has counts of seconds or ticks as numbers, where the same number means another value in
    another unit.
    """
    match kind:
        case Nullable(inner=inner) | Wrapped(inner=inner) | NullableTuple(inner=inner):
            return units(inner)
        case Array(items=items):
            return units(items)
        case Tuple(parts=parts) | Variant(parts=parts):
            return [unit for part in parts for unit in units(part)]
    if not isinstance(kind, Scalar) or pa.types.is_temporal(arrow_type(kind)):
        return []
    return [kind.unit] if kind.unit else []


def converted(kind: TypeKind, array: Any) -> Any:
    """Return a block's array, of type `kind.arrow`, as one of `arrow_type(kind)`."""
    match kind:
        case Nullable(inner=inner) | Wrapped(inner=inner):
            return converted(inner, array)
        case NullableTuple(inner=inner):
            given = _is(array.field(0), 1)
            return _struct(inner, inner.parts, array.field(1).flatten(), pc.invert(given))
        case Map(items=Tuple(parts=(key, value))):
            keys, values = array.values.field(0), array.values.field(1)
            made = converted(key, keys), converted(value, values)
            maps: Any = pa.MapArray  # whose stubs know no type beside keys and values
            return maps.from_arrays(array.offsets, *made, type=arrow_type(kind), mask=_nulls(array))
        case Array(items=items):
            inner = converted(items, array.values)
            return pa.ListArray.from_arrays(
                array.offsets, inner, type=arrow_type(kind), mask=_nulls(array)
            )
        case Tuple(parts=parts):
            return _struct(kind, parts, array.flatten(), _nulls(array))
        case Variant(parts=parts):
            which, *columns = array.flatten()
            return _struct(kind, parts, _chosen(which, columns), _is(which, 0))
    return _scalars(kind, array)


def _struct(kind: TypeKind, parts: Any, columns: Any, mask: Any) -> Any:
    """Return a struct of the parts, null where the mask is true."""
    inner = [converted(part, column) for part, column in zip(parts, columns, strict=True)]
    struct: Any = arrow_type(kind)
    return pa.StructArray.from_arrays(inner, fields=list(struct), mask=mask)


def _is(which: Any, number: int) -> Any:
    return pc.equal(which, pa.scalar(number, pa.uint8()))


def _nulls(array: Any) -> Any:
    """Return where an array is null: only as an alternative of a Variant that is another."""
    return array.is_null() if array.null_count else None


def _chosen(which: Any, columns: list[Any]) -> list[Any]:
    """Return a Variant's alternatives, null in rows of another; blocks have defaults there."""
    numbers = pa.array(range(len(which)), pa.int64())
    return [
        column.take(pc.if_else(_is(which, at), numbers, pa.scalar(None, pa.int64())))
        for at, column in enumerate(columns, 1)
    ]


def _scalars(kind: TypeKind, array: Any) -> Any:
    wanted = arrow_type(kind)
    if wanted.equals(array.type):
        return array
    name, arguments = _bare(kind.text)
    if name == "Date":
        return array.cast(pa.int32()).cast(wanted)
    if pa.types.is_timestamp(wanted):
        missing = MICROSECONDS - (int(arguments[0]) if name == "DateTime64" else 0)
        ticks = array.cast(pa.int64())
        return pc.multiply(ticks, pa.scalar(10**missing, pa.int64())).cast(wanted)
    return array.cast(wanted)


def _bare(text: str) -> tuple[str, tuple[str, ...]]:
    """Name and arguments of the type itself, without what is wrapped around it."""
    parsed = parse_text(text)
    if parsed.name in {"Nullable", "LowCardinality", "SimpleAggregateFunction"}:
        return _bare(parsed.arguments[-1])
    return parsed.name, tuple(parsed.arguments)
