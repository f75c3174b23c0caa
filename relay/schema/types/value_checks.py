"""Finds values of a protobuf-side column that its ClickHouse type cannot hold.

Receives a whole Arrow array, gives a mask with true where a value does not fit, or None where all
do; nulls always fit. A text fits if it is the number, address or JSON object that its column holds:
whatever passes, ClickHouse's CAST of the text reads as the same value. No Python per value, but for
JSON.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Check = Callable[["pa.Array[Any]"], "pa.BooleanArray | None"]


_H = "[0-9a-fA-F]{1,4}"
_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}(\.{_OCTET}){{3}}"


def _ipv6_forms() -> list[str]:
    """RFC 4291, 2.2: eight groups, `::` for one or more groups of zeros, a tail as IPv4."""
    forms = [f"({_H}:){{7}}{_H}", f"({_H}:){{6}}{_IPV4}"]
    for before in range(8):
        head = f"{_H}(:{_H}){{{before - 1}}}" if before else ""
        after = 7 - before
        forms.append(f"{head}::({_H}(:{_H}){{0,{after - 1}}})?" if after else f"{head}::")
        if after >= 2:
            forms.append(f"{head}::({_H}:){{0,{after - 2}}}{_IPV4}")
    return forms


def range_check(low: int, high: int) -> Check:
    """Return numbers below `low` or above `high`."""

    def check(array: pa.Array[Any]) -> pa.BooleanArray | None:
        extremes: Any = pc.min_max(array)
        least, most = extremes["min"].as_py(), extremes["max"].as_py()
        if least is None or (least >= low and most <= high):
            return None
        scalars = (pa.scalar(low, array.type), pa.scalar(high, array.type))
        outside: Any = pc.or_(pc.less(array, scalars[0]), pc.greater(array, scalars[1]))
        return _or_none(outside)

    return check


def length_check(most: int) -> Check:
    """Check for byte strings longer than `most` bytes."""

    def check(array: Any) -> pa.BooleanArray | None:
        lengths: Any = pc.binary_length(array)
        return _or_none(pc.greater(lengths, pa.scalar(most, pa.int32())))

    return check


def names_check(allowed: list[str]) -> Check:
    """Return strings other than those `allowed`."""
    value_set = pa.array([*allowed, None], pa.string())

    def check(array: pa.Array[Any]) -> pa.BooleanArray | None:
        return _or_none(pc.invert(pc.is_in(array, value_set=value_set)))

    return check


def pattern_check(pattern: str) -> Check:
    """Return strings that are not of a pattern of RE2, whose $ is only the end of text."""

    def check(array: pa.Array[Any]) -> pa.BooleanArray | None:
        return _or_none(pc.invert(pc.match_substring_regex(array, pattern)))

    return check


uuid_check = pattern_check("^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")
ipv4_check = pattern_check(f"^{_IPV4}$")
"""Numbers to 255 have no leading zeros."""
ipv6_check = pattern_check(f"^({'|'.join(_ipv6_forms())})$")
"""Addresses have no zone."""


def integer_check(low: int, high: int) -> Check:
    """Return strings that are no decimal integer from `low` (at most 0) to `high`."""
    pattern = "^-?[0-9]+$" if low < 0 else "^[0-9]+$"
    digits = len(str(high))

    def check(array: pa.Array[Any]) -> pa.BooleanArray | None:
        wrong: Any = pc.invert(pc.match_substring_regex(array, pattern))
        sizes: Any = pc.binary_length
        longest = pc.max(sizes(array)).as_py()
        if longest is not None and longest >= digits:
            negative: Any = pc.starts_with(array, "-")
            size: Any = pc.utf8_ltrim(pc.utf8_ltrim(array, "-"), "0")
            limit: Any = pc.if_else(negative, str(-low), str(high))
            length: Any = sizes(size)
            most: Any = pa.scalar(digits, pa.int32())
            # Of equally many digits, the order of texts is that of numbers.
            beyond: Any = pc.and_(pc.equal(length, most), pc.greater(size, limit))
            wrong = pc.or_(wrong, pc.or_(pc.greater(length, most), beyond))
        return _or_none(wrong)

    return check


def decimal_check(precision: int, scale: int) -> Check:
    """Return strings that are no decimal of `precision` digits, `scale` of them a fraction."""
    whole = f"0*[0-9]{{1,{precision - scale}}}" if precision > scale else "0+"
    return pattern_check(f"^-?{whole}" + (rf"(\.[0-9]{{1,{scale}}})?$" if scale else "$"))


def json_check(array: pa.Array[Any]) -> pa.BooleanArray | None:
    """Return strings that are no JSON object, or none that ClickHouse takes.

    The texts are parsed as one JSON array by Python's own parser, whose loop is C; only what
    looks odd is parsed by itself.
    """
    texts: list[Any] = array.fill_null("{}").to_pylist()
    if _all_objects(texts):
        doubtful = _or_none(pc.match_substring_regex(array, _DOUBTFUL))
        if doubtful is None:
            return None
        suspects = np.flatnonzero(doubtful.to_numpy(zero_copy_only=False))
    else:
        suspects = np.arange(len(texts))
    bad = np.zeros(len(texts), np.bool_)
    for at in suspects.tolist():
        bad[at] = not _is_object(texts[at])
    return _or_none(pa.array(bad))


_DOUBTFUL = (
    r"\\u[dD][89a-fA-F]|[eE]\+?[0-9]{3}|[0-9]{200}"
    r'|(\.|\\u002[eE])([^"\\]|\\.)*"\s*:'
)
"""Half a character, a number beyond Float64 (1e308 is one of 210 digits and e99), a key with a dot,
however it is written: for a closer look."""
_BETWEEN = str(uuid.uuid4())
"""Stands between texts: nobody can close one text's array in another without knowing it."""


def _all_objects(texts: list[str]) -> bool:
    joined = f',"{_BETWEEN}",'.join(texts)
    try:
        parsed = json.loads(f"[{joined}]", object_pairs_hook=_object, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return False
    return len(parsed) == max(2 * len(texts) - 1, 0) and all(
        type(value) is dict for value in parsed[::2]
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key occurs twice")
    return made


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("beyond Float64")
    return number


def _is_object(text: str) -> bool:
    try:
        parsed = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_no_constant,
            parse_float=_float,
            parse_int=_float,  # 26.9 keeps those beyond Float64 as texts, 25.8 refuses them
        )
        if type(parsed) is not dict:
            return False
        json.dumps(parsed, ensure_ascii=False).encode()
        return all(len(set(paths)) == len(paths) for paths in _paths_of_objects(parsed))
    except (ValueError, RecursionError):
        return False


def _paths_of_objects(value: Any) -> Iterator[list[str]]:
    """Of the object that a value is, or of those in its lists, and of those in their lists."""
    if isinstance(value, list):
        for item in value:
            yield from _paths_of_objects(item)
    elif isinstance(value, dict):
        leaves = list(_leaves(value))
        yield [path for path, _ in leaves]
        for _, leaf in leaves:
            yield from _paths_of_objects(leaf)


def _leaves(value: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Each with its path; ClickHouse takes the key "a.b" for b in a."""
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            yield from _leaves(inner, f"{before}{key}.")
        else:
            yield f"{before}{key}", inner


def _or_none(bad: Any) -> pa.BooleanArray | None:
    """Return `bad` with nulls as false, or None where nothing is bad."""
    if not pc.any(bad).as_py():
        return None
    filled: pa.BooleanArray = pc.fill_null(bad, pa.scalar(value=False))
    return filled
