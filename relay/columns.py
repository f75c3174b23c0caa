"""Columns of a file or a program, as the Arrow columns a table's row message is made of.

Receives a record batch with whatever types its reader chose and the table's codec; gives a
record batch in protobuf-side types, checked so that the relay accepts every row. Never guesses:
a column the table does not have, one it needs and does not get, and a value that does not fit
are errors that name file, row, column and value.

What is accepted, beside the type itself: numbers as text; text as ISO 8601 for Date, DateTime
and DateTime64 (without a zone: UTC); integers there as what is on the wire (days since the
epoch, Unix seconds, ticks); floats without a fraction for integers. Fractions that a DateTime
cannot hold, and numbers for a String column, are refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from relay.errors import ConfigError
from relay.schema import live_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from relay.records_pb2 import Column, TableSchema
    from relay.rowmessage import RowCodec
    from relay.types import ColumnType

    Array = pa.Array[Any]

_WRAPPER = re.compile(r"(?:LowCardinality|Nullable)\((.*)\)")
_TICKS = re.compile(r"DateTime64\((\d)")
_NANOSECONDS = ("DateTime64(7", "DateTime64(8", "DateTime64(9")
_UNITS: tuple[tuple[Any, int], ...] = (("s", 0), ("ms", 3), ("us", 6), ("ns", 9))
_ZONED = r"\d:\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"
_DIGITS = r"^-?\d+$"
NOT_CONVERTED = (pa.ArrowInvalid, pa.ArrowNotImplementedError)
"""What `convert` raises."""


class Origin(NamedTuple):
    """Where a batch came from, for errors."""

    file: str
    first_row: int  # number of the batch's first row in the file, from 1


class BadValue(ConfigError):
    """A value does not fit its column."""


def base_type(text: str) -> str:
    """The ClickHouse type without LowCardinality and Nullable."""
    while match := _WRAPPER.fullmatch(text):
        text = match[1]
    return text


def is_required(column: Column) -> bool:
    """Whether leaving the column out would put a value there that nobody chose."""
    return not column.default_kind and "Nullable(" not in column.type


def check_names(
    schema: TableSchema, names: Collection[str], file: str, *, allow_missing: bool
) -> None:
    """Unknown and missing columns of a file, all in one error.

    Raises:
        ConfigError: naming file, table and the columns.
    """
    columns = live_columns(schema)
    known = {column.name for column in columns}
    unknown = [name for name in names if name not in known]
    missing = [c.name for c in columns if is_required(c) and c.name not in names]
    problems = []
    if unknown:
        problems.append(f"{schema.table} has no column {', '.join(map(repr, unknown))}")
    if missing and not allow_missing:
        problems.append(f"the file lacks column {', '.join(map(repr, missing))}")
    if problems:
        raise ConfigError(
            f"{file}: {'; '.join(problems)} (columns of {schema.table}: "
            f"{', '.join(c.name for c in columns)})",
            "rename or drop the file's columns; --allow-missing lets absent ones take "
            "their DEFAULT",
        )


def row_columns(codec: RowCodec, batch: pa.RecordBatch, origin: Origin) -> pa.RecordBatch:
    """The batch as columns of `codec.wire_schema`, which `encode_rows` takes.

    A null, and a column the batch does not have, is a field left out: null in a Nullable
    column, the DEFAULT in any other.

    Raises:
        BadValue: naming file, row, column, value and the type it does not fit.
    """
    arrays = []
    for name, type_ in zip(codec.column_names, codec.types, strict=True):
        if (place := batch.schema.get_field_index(name)) < 0:
            arrays.append(pa.nulls(batch.num_rows).cast(type_.wire))
        else:
            arrays.append(_checked(batch.column(place), name, type_, origin))
    return pa.RecordBatch.from_arrays(arrays, schema=codec.wire_schema)


def _checked(array: Array, name: str, type_: ColumnType, origin: Origin) -> Array:
    """One column converted, and within the range of its ClickHouse type."""
    try:
        converted = convert(array, type_)
    except NOT_CONVERTED as error:
        row = _first_failing(lambda part: convert(part, type_), array)
        value = array[row].as_py() if len(array) else None
        reason = f"{type_.complaint(value)}: {str(error).splitlines()[0]}"
        raise _bad_value(row, name, origin, reason) from error
    _, bad = type_.narrow(converted)
    if bad is not None:
        row = pc.index(bad, value=True).as_py()
        raise _bad_value(row, name, origin, type_.complaint(array[row].as_py()))
    return converted


def _bad_value(row: int, name: str, origin: Origin, reason: str) -> BadValue:
    return BadValue(
        f"{origin.file}, row {origin.first_row + row}, column {name!r}: {reason}",
        "mend the value, or change the column's type in ClickHouse",
    )


def _first_failing(attempt: Callable[[Array], object], array: Array) -> int:
    """Index of the first value that does not convert; by bisection, as only errors come here."""
    low, high = 0, len(array)  # array[:low] converts, array[:high] does not
    while high - low > 1:
        middle = (low + high) // 2
        try:
            attempt(array.slice(low, middle - low))
        except NOT_CONVERTED:
            high = middle
        else:
            low = middle
    return low


def convert(array: Array, type_: ColumnType) -> Array:
    """One column in its protobuf-side type; ranges narrower than that are not checked.

    Raises:
        ArrowInvalid, ArrowNotImplementedError: some value does not convert.
    """
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    target = type_.wire
    if array.null_count == len(array):
        return pa.nulls(len(array)).cast(target)
    if array.type == target:
        return array
    base = base_type(type_.clickhouse)
    if base.startswith(("Date", "DateTime")):
        return _time(array, base).cast(target)
    if target in (pa.string(), pa.binary()) and not _is_text(array.type):
        raise pa.ArrowInvalid(f"{array.type} is not text")
    if target == pa.bool_() and not _is_text(array.type):
        array = _no_other_than_0_and_1(array)
    return array.cast(target)


def _no_other_than_0_and_1(array: Array) -> Array:
    numbers: Any = array.cast(pa.int64())
    if not pc.all(pc.is_in(numbers, value_set=pa.array([0, 1, None], pa.int64()))).as_py():
        raise pa.ArrowInvalid("neither 0 nor 1")
    return array


def _is_text(type_: pa.DataType) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_string(type_)
        or kinds.is_large_string(type_)
        or kinds.is_string_view(type_)
        or kinds.is_binary(type_)
        or kinds.is_large_binary(type_)
        or kinds.is_fixed_size_binary(type_)
    )


def _time(array: Array, base: str) -> Array:
    """Dates and times as the integers on the wire: days, seconds or ticks."""
    if pa.types.is_integer(array.type):
        return array
    if not _is_text(array.type):
        return _ticks(array, base)
    texts: Any = array.cast(pa.string())
    digits: Any = pc.match_substring_regex(texts, _DIGITS)
    zoned: Any = pc.match_substring_regex(texts, _ZONED)
    plain: Any = pc.invert(pc.or_(digits, zoned))
    # Nanoseconds end in 2262, ClickHouse's years later.
    fine: Any = "ns" if base.startswith(_NANOSECONDS) else "us"
    none = pa.scalar(None, pa.string())
    local: Any = pa.date32() if base == "Date" else pa.timestamp(fine)
    counts: Array = pc.coalesce(
        pc.if_else(digits, texts, none).cast(pa.int64()),
        _ticks(pc.if_else(zoned, texts, none).cast(pa.timestamp(fine, "UTC")), base),
        _ticks(pc.if_else(plain, texts, none).cast(local), base),
    )
    return counts


def _ticks(array: Array, base: str) -> Array:
    """Dates and timestamps as a count of the type's unit since the epoch; nothing is rounded."""
    if base == "Date":
        days: Any = array.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
        if pa.types.is_timestamp(array.type):
            seconds: Any = array.cast(pa.timestamp("s", array.type.tz)).cast(pa.int64())
            if pc.any(pc.not_equal(pc.multiply(days, 86_400), seconds)).as_py():
                raise pa.ArrowInvalid("a time of day is more than the type holds")
        whole: Array = days
        return whole
    precision = int(match[1]) if (match := _TICKS.match(base)) else 0
    unit, digits = next(pair for pair in _UNITS if pair[1] >= precision)
    zone = getattr(array.type, "tz", None)
    counted: Any = array.cast(pa.timestamp(unit, zone)).cast(pa.int64())
    step = 10 ** (digits - precision)
    ticks: Any = pc.divide(counted, step)
    if pc.any(pc.not_equal(pc.multiply(ticks, step), counted)).as_py():
        raise pa.ArrowInvalid("more digits than the type holds")
    counts: Array = ticks
    return counts
