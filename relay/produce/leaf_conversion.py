"""Numbers, texts and times of a file or program, as the whole numbers and texts on the wire.

Receives an Arrow array as a reader chose it and the kind, without parts, that it is meant
for; gives the wire array. Nothing is guessed, and nothing rounded but by a float's own field, to
the nearest that it holds: what does not convert is an ArrowInvalid. A float meant for a Decimal
stands for its shortest decimal text, as people write it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from relay.schema.types.exact_cast import (
    DIGITS_MOST,
    as_strings,
    decimal_texts,
    is_text,
    refuse_infinity,
    refuse_other_than_0_and_1,
)
from relay.schema.types.ticks import base_type, ticks

if TYPE_CHECKING:
    from relay.schema.types.kind import Scalar

    Array = pa.Array[Any]

_SCALE = re.compile(r"Decimal\(\d+(?:, *(\d+))?\)")
_NANOSECONDS = ("DateTime64(7", "DateTime64(8", "DateTime64(9")
_FINER = r"\.\d{7}"
"""Digits of a second that only nanoseconds hold."""
_ZONED = r"(\d:\d\d.*|[T ]\d\d)(Z|[+-]\d\d(:?\d\d)?)$"
_DIGITS = r"^-?\d+$"
_DAY = r"^(19|2[0-2])\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(([01]\d|2[0-3])([0-5]\d){2})?$"
"""Digits that are a day, or a second, of the years that ClickHouse holds."""

_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
)
_NUMBERS = {name: number for number, name in enumerate(_MONTHS, 1)}
_NUMBERS |= {name[:3]: number for name, number in _NUMBERS.items()}
_NUMBERS["sept"] = 9

_REST = r"(?P<rest>(?:[ T].*)?)$"
_YEAR_FIRST = rf"^(?P<year>\d{{4}})/(?P<month>\d{{1,2}})/(?P<day>\d{{1,2}}){_REST}"
_MONTH_FIRST = rf"^(?P<month>[A-Za-z]{{3,9}})\.? (?P<day>\d{{1,2}}),? (?P<year>\d{{4}}){_REST}"
_DAY_FIRST = rf"^(?P<day>\d{{1,2}})[ -](?P<month>[A-Za-z]{{3,9}})\.?[ -](?P<year>\d{{4}}){_REST}"


def leaf(array: Array, kind: Scalar) -> Array:
    """Return a column, or the elements of one, of a type without parts."""
    target = kind.wire
    if array.null_count == len(array):
        return pa.nulls(len(array)).cast(target)
    if target != pa.binary() and is_text(array.type):
        _refuse_other_than_utf8(array)
    if array.type == target:
        return array
    base = base_type(kind.text)
    if base.startswith(("Date", "Time")):
        return _to_counts(array, base).cast(target)
    if base.startswith(("Decimal", "Int", "UInt")) and target == pa.string():
        decimal = _SCALE.fullmatch(base)
        if decimal and pa.types.is_floating(array.type):
            array = _to_decimals(array, int(decimal[1] or 0))
        return _to_digits(array)
    if target in (pa.string(), pa.binary()):
        if not is_text(array.type):
            raise pa.ArrowInvalid(f"{array.type} is not text")
        return array.cast(target)
    return _to_numbers(array, target)


def _to_numbers(array: Array, target: pa.DataType) -> Array:
    """Numbers, and texts of some, as those of a number's type."""
    if pa.types.is_temporal(array.type):
        # Its count is of whatever unit its reader chose, and of another in the next row.
        raise pa.ArrowInvalid(f"{array.type} is a time: give the number that is meant")
    if target == pa.bool_() and not is_text(array.type):
        refuse_other_than_0_and_1(array)
    if pa.types.is_integer(target) and is_text(array.type):
        return _to_integers(array, target)
    return _to_floats(array, target) if pa.types.is_floating(target) else array.cast(target)


def _to_integers(array: Array, target: pa.DataType) -> Array:
    """Texts as whole numbers; Arrow reads 0x…, too, and the highest bit as a sign."""
    texts: Any = as_strings(array)
    if pc.any(pc.or_(pc.starts_with(texts, "0x"), pc.starts_with(texts, "0X"))).as_py():
        raise pa.ArrowInvalid("a whole number has decimal digits only")
    numbers: Array = texts.cast(target)
    return numbers


def _to_floats(array: Array, target: pa.DataType) -> Array:
    """Numbers as the nearest ones that a float holds, as INSERT rounds them.

    Raises:
        ArrowInvalid: one that is finite would be infinite.
    """
    # Arrow's own check wants every digit of whole numbers, but of no others.
    numbers: Array = array.cast(target, safe=not pa.types.is_integer(array.type))
    refuse_infinity(array, numbers)
    return numbers


def _to_decimals(array: Array, scale: int) -> Array:
    """Floats as decimal numbers with so many digits behind the point.

    Raises:
        ArrowInvalid: one is none, or its shortest text has more digits than that.
    """
    finite: Any = pc.is_finite(array)
    if not pc.all(finite).as_py():
        first = array[pc.index(finite, value=False).as_py()].as_py()
        raise pa.ArrowInvalid(f"{first} is not a decimal number")
    refused = pa.ArrowInvalid(
        "a float is converted through its shortest decimal text, which here has more than "
        f"{scale} digits after the point, or more than {DIGITS_MOST} in all: use decimal.Decimal "
        "or text"
    )
    # Of 16 bits none is as small, and Arrow compares none.
    if not pa.types.is_float16(array.type) and pc.any(_out_of_range(array, scale)).as_py():
        raise refused
    texts: Any = array.cast(pa.string())
    try:
        numbers: Array = texts.cast(pa.decimal256(DIGITS_MOST, scale))
    except pa.ArrowInvalid as error:
        raise refused from error
    return numbers


def _out_of_range(array: Array, scale: int) -> Any:
    """Whether a float is between 0 and the last digit, or has too many before the point.

    Arrow's own cast of such texts is not to be trusted: it makes 0 of 2.255020802617456e-218.
    """
    size: Any = pc.abs(array)
    # As the array's own type has them: a float32 of 0.01 is less than the double 0.01.
    least, most = (
        pa.scalar(float(f"1e{exponent}")).cast(array.type, safe=False)
        for exponent in (-scale, DIGITS_MOST - scale)
    )
    tiny = pc.and_(pc.greater(size, pa.scalar(0.0, array.type)), pc.less(size, least))
    return pc.or_(tiny, pc.greater_equal(size, most))


def _to_digits(array: Array) -> Array:
    """Whole and decimal numbers as text, without an exponent."""
    if is_text(array.type) or pa.types.is_integer(array.type):
        return array.cast(pa.string())
    if not pa.types.is_decimal(array.type):
        raise pa.ArrowInvalid(f"{array.type} is neither text nor an exact number")
    return decimal_texts(array)  # type: ignore[no-any-return]


def _refuse_other_than_utf8(array: Array) -> None:
    """Raise ArrowInvalid; a reader's strings are not looked at by anybody else."""
    if pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.binary())
    try:
        array.cast(pa.large_binary()).cast(pa.large_string())
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid("a text is not UTF-8") from error


def _to_counts(array: Array, base: str) -> Array:
    """Dates and times as the integers on the wire: days, seconds or ticks."""
    if pa.types.is_integer(array.type):
        return array
    if not is_text(array.type):
        return ticks(array, base)  # type: ignore[no-any-return]
    texts: Any = array.cast(pa.string())
    try:
        return _time_texts(texts, base)
    except pa.ArrowInvalid:
        dates = _iso_dates(texts)
        if dates.equals(texts):
            raise
        return _time_texts(dates, base)


def _iso_dates(texts: Any) -> Any:
    """Texts in which dates as 2012/1/31, Jan 31 2012, 31-Jan-2012 are 2012-01-31.

    What follows a date, after a blank or T, stays; so does a text in which another day may be
    meant, as 01/02/2012: it is read by a format that a person names.
    """
    dates: Any = texts
    for pattern in (_YEAR_FIRST, _MONTH_FIRST, _DAY_FIRST):
        parts: Any = pc.extract_regex(texts, pattern)
        if parts.null_count == len(parts):
            continue
        year, month, day, rest = (
            pc.struct_field(parts, name) for name in ("year", "month", "day", "rest")
        )
        number = month if pattern is _YEAR_FIRST else _month_numbers(month)
        two_digits = [pc.utf8_lpad(part, 2, "0") for part in (number, day)]
        date = pc.binary_join_element_wise(year, *two_digits, "-")
        dates = pc.coalesce(pc.binary_join_element_wise(date, rest, ""), dates)
    return dates


def _month_numbers(names: Any) -> Any:
    """Numbers of months by their English names and abbreviations; null of others."""
    known = pa.array(list(_NUMBERS))
    numbers = pa.array([str(number) for number in _NUMBERS.values()])
    return numbers.take(pc.index_in(pc.utf8_lower(names), value_set=known))


def _time_texts(texts: Any, base: str) -> Array:
    """ISO 8601, or what is on the wire as digits."""
    digits: Any = pc.match_substring_regex(texts, _DIGITS)
    zoned: Any = pc.match_substring_regex(texts, _ZONED)
    plain: Any = pc.invert(pc.or_(digits, zoned))
    none = pa.scalar(None, pa.string())
    if base.startswith("Time"):
        return _to_integers(texts, pa.int64())
    if pc.any(digits).as_py():
        _refuse_days(texts)
    counts: Array = pc.coalesce(
        pc.if_else(digits, texts, none).cast(pa.int64()),
        _iso_counts(pc.if_else(zoned, texts, none), "UTC", base),
        _iso_counts(pc.if_else(plain, texts, none), None, base),
    )
    return counts


def _iso_counts(texts: Any, zone: str | None, base: str) -> Any:
    """ISO 8601 as counts of the type's unit."""
    micro: Any = pa.timestamp("us", zone)
    if not base.startswith(_NANOSECONDS):
        return ticks(texts.cast(micro), base)
    # Nanoseconds end in 2262, ClickHouse's years later: only what needs them is read in them.
    finer: Any = pc.match_substring_regex(texts, _FINER)
    none = pa.scalar(None, pa.string())
    return pc.coalesce(
        ticks(pc.if_else(finer, none, texts).cast(micro), base),
        ticks(pc.if_else(finer, texts, none).cast(pa.timestamp("ns", zone)), base),
    )


def _refuse_days(texts: Any) -> None:
    """Raise ArrowInvalid where digits are more likely a day as ISO 8601 has it, 20240131.

    As the number of seconds or ticks that they may be, too, they are a moment of 1970.
    """
    days: Any = pc.match_substring_regex(texts, _DAY)
    row = pc.index(days, value=True).as_py()
    if row >= 0:
        raise pa.ArrowInvalid(
            f"{texts[row].as_py()!r} may be a day or a number: write 2024-01-31 for a day"
        )
