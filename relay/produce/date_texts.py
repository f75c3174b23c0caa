"""Converts dates as people write them to ISO 8601, where only one day can be meant.

Receives texts; gives those that begin with a year, or name the month, in the form that Arrow
reads, and all others as they are. 01/02/2012 is none of them: it is read by a format that a
person names.
"""

# pure

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

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


def iso_dates(texts: pa.Array[Any]) -> pa.Array[Any]:
    """Return texts in which dates as 2012/1/31, Jan 31 2012, 31-Jan-2012 are 2012-01-31.

    Args:
        texts: strings and nulls; what follows a date, after a blank or T, stays.
    """
    found: Any = texts
    for pattern in (_YEAR_FIRST, _MONTH_FIRST, _DAY_FIRST):
        parts: Any = pc.extract_regex(texts, pattern)
        if parts.null_count == len(parts):
            continue
        year, month, day, rest = (
            pc.struct_field(parts, name) for name in ("year", "month", "day", "rest")
        )
        number = month if pattern is _YEAR_FIRST else _month_numbers(month)
        two = [pc.utf8_lpad(part, 2, "0") for part in (number, day)]
        date = pc.binary_join_element_wise(year, *two, "-")
        found = pc.coalesce(pc.binary_join_element_wise(date, rest, ""), found)
    whole: pa.Array[Any] = found
    return whole


def _month_numbers(names: Any) -> Any:
    """Of English names and their abbreviations; null of others."""
    known = pa.array(list(_NUMBERS))
    numbers = pa.array([str(number) for number in _NUMBERS.values()])
    return numbers.take(pc.index_in(pc.utf8_lower(names), value_set=known))
