"""Finds texts that are not the number, address or JSON object that their column holds.

As relay.schema.types.value_checks: a whole Arrow array in, a mask with true where a value does not
fit out, or None where all do; nulls always fit. Whatever passes, ClickHouse's CAST of the text
reads as the same value.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relay.schema.types.value_checks import or_none

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relay.schema.types.value_checks import Check

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


# RE2's $ is the end of text and not, as elsewhere, also before a last newline.
_IPV4_ALONE = f"^{_IPV4}$"
_IPV6_ALONE = f"^({'|'.join(_ipv6_forms())})$"
_UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"


def uuid_check(array: pa.Array[Any]) -> pa.BooleanArray | None:
    """Return strings other than 36 characters of 8-4-4-4-12 hexadecimal digits, in either case."""
    return _unlike(array, _UUID)


def ipv4_check(array: pa.Array[Any]) -> pa.BooleanArray | None:
    """Return strings other than four decimal numbers to 255, without leading zeros."""
    return _unlike(array, _IPV4_ALONE)


def ipv6_check(array: pa.Array[Any]) -> pa.BooleanArray | None:
    """Return strings that are no IPv6 address (RFC 4291, without zone)."""
    return _unlike(array, _IPV6_ALONE)


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
        return or_none(wrong)

    return check


def decimal_check(precision: int, scale: int) -> Check:
    """Return strings that are no decimal of `precision` digits, `scale` of them a fraction."""
    whole = f"0*[0-9]{{1,{precision - scale}}}" if precision > scale else "0+"
    pattern = f"^-?{whole}" + (rf"(\.[0-9]{{1,{scale}}})?$" if scale else "$")

    def check(array: pa.Array[Any]) -> pa.BooleanArray | None:
        return _unlike(array, pattern)

    return check


def json_check(array: pa.Array[Any]) -> pa.BooleanArray | None:
    """Return strings that are no JSON object, or none that ClickHouse takes.

    The texts are parsed as one JSON array by Python's own parser, whose loop is C; only what
    looks odd is parsed by itself.
    """
    texts: list[Any] = array.fill_null("{}").to_pylist()
    if _all_objects(texts):
        doubtful: Any = pc.match_substring_regex(array, _DOUBTFUL)
        if not pc.any(doubtful).as_py():
            return None
        filled: Any = pc.fill_null(doubtful, pa.scalar(value=False))
        suspects = np.flatnonzero(filled.to_numpy(zero_copy_only=False))
    else:
        suspects = np.arange(len(texts))
    bad = np.zeros(len(texts), np.bool_)
    for at in suspects.tolist():
        bad[at] = not _is_object(texts[at])
    return or_none(pa.array(bad))


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
        type(one) is dict for one in parsed[::2]
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
    if number in (float("inf"), float("-inf")):
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


def _unlike(array: pa.Array[Any], pattern: str) -> pa.BooleanArray | None:
    return or_none(pc.invert(pc.match_substring_regex(array, pattern)))
