"""Arrow's dates and times as the whole numbers that a ClickHouse type counts; pure.

Arrow's own cast of a timestamp to a number keeps the number and forgets its unit: a second became a
millisecond.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from relay.schema.types.exact_cast import decoded_type, pairs

Array: TypeAlias = Any
"""An Arrow array: its type stubs know too little of what a cast gives."""
DATES = ("Date", "Date32")
"""Count days."""
_WRAPPER = re.compile(r"(?:LowCardinality|Nullable)\((.*)\)")
_TICKS = re.compile(r"(?:Date)?Time64\((\d)")
_UNITS: tuple[tuple[Any, int], ...] = (("s", 0), ("ms", 3), ("us", 6), ("ns", 9))


def ticks(array: Array, base: str) -> Array:
    """Return dates and times as counts of the type's unit, since 1970 or of a day.

    The ClickHouse type is as `base_type` gives it.

    Raises:
        ArrowInvalid: the type holds less than a value says, or it is no such time.
    """
    if base in DATES:
        days = array.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
        if pa.types.is_timestamp(array.type):
            seconds = array.cast(pa.timestamp("s", array.type.tz)).cast(pa.int64())
            if pc.any(pc.not_equal(pc.multiply(days, 86_400), seconds)).as_py():
                raise pa.ArrowInvalid("a time of day is more than the type holds")
        return days
    is_duration = pa.types.is_duration(array.type)
    if base.startswith("Time") and not (is_duration or pa.types.is_time(array.type)):
        raise pa.ArrowInvalid(f"{array.type} is not a time of day")
    precision = int(match[1]) if (match := _TICKS.match(base)) else 0
    unit, digits = next(pair for pair in _UNITS if pair[1] >= precision)
    zone = getattr(array.type, "tz", None)
    if base.startswith("Time"):
        unit, digits = ("ns", 9) if precision > 6 else ("us", 6)
        plain: Any = pa.duration(unit) if is_duration else pa.time64(unit)
        counted = array.cast(plain).cast(pa.int64())
    else:
        if 6 < precision < 9 and getattr(array.type, "unit", "") != "ns":
            unit, digits = "us", 6  # nanoseconds end in 2262, these types later
        counted = array.cast(pa.timestamp(unit, zone)).cast(pa.int64())
    if digits < precision:
        return pc.multiply_checked(counted, 10 ** (precision - digits))
    step = 10 ** (digits - precision)
    counts = pc.divide(counted, step)
    if pc.any(pc.not_equal(pc.multiply(counts, step), counted)).as_py():
        raise pa.ArrowInvalid("more digits than the type holds")
    return counts


def loses_units(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether dates or times would become numbers by a cast, or numbers these.

    Parts are compared by name, as Arrow casts them; `other_parts` says which have no counterpart.
    Arrow checks none of that, and cuts the time of day where a timestamp becomes a date.
    """
    kinds, given, wanted = pa.types, decoded_type(given), decoded_type(wanted)
    if kinds.is_temporal(given) and kinds.is_temporal(wanted):
        return kinds.is_timestamp(given) and kinds.is_date(wanted)
    if kinds.is_temporal(given) or kinds.is_temporal(wanted):
        return not (kinds.is_string(given) or kinds.is_string(wanted))
    return any(loses_units(*pair) for pair in pairs(given, wanted))


def base_type(text: str) -> str:
    """Return the ClickHouse type without LowCardinality and Nullable."""
    while match := _WRAPPER.fullmatch(text):
        text = match[1]
    return text
