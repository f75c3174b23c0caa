"""Types without parts: their protobuf scalars, Arrow types, ranges and defaults.

Receives a type's text, taken apart, gives its kind. Every range that the protobuf scalar has
and the type does not is checked; what a text stands for is checked as text. Nothing wraps.

Dates and times travel as whole numbers: counts since 1970, or of a day. A time zone is the column's
to show; what travels is the instant.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from relay.clickhouse.quoting import literal
from relay.schema.types import value_checks
from relay.schema.types.kind import Maker, Scalar
from relay.schema.types.proto_shape import Shape
from relay.schema.types.type_text import TypeText, enum_numbers

_CARRIED: dict[str, tuple[pa.DataType, str]] = {
    "bool": (pa.bool_(), "Bool"),
    "float": (pa.float32(), "Float32"),
    "double": (pa.float64(), "Float64"),
    "int32": (pa.int32(), "Int32"),
    "int64": (pa.int64(), "Int64"),
    "uint32": (pa.uint32(), "UInt32"),
    "uint64": (pa.uint64(), "UInt64"),
    "string": (pa.string(), "String"),
    "bytes": (pa.binary(), "String"),
}
"""By protobuf's scalar: Arrow's type in rows and blocks, and the INSERT's, unless a type says more.
"""
_INT64 = (-(2**63), 2**63 - 1)
_DATETIME64_SECONDS = (-2_208_988_800, 10_413_792_000)
"""1900-01-01 to 2300-01-01, end excluded, UTC: what every release of ClickHouse holds. Releases
before 26.7 clamp what lies outside when they show it (ClickHouse pull request 107907)."""
_TIME_SECONDS = 3_599_999
"""999:59:59, the greatest Time in either direction."""


def _scalar(text: str, proto: str, **more: Any) -> Scalar:
    arrow, input_type = _CARRIED[proto]
    return replace(Scalar(text, Shape(proto), arrow, arrow, input_type), **more)


def _integer(name: str) -> Scalar:
    low, high = _bounds(name)
    bits = high.bit_length() + (low < 0)
    plain = _scalar(name, f"{'int' if low else 'uint'}{max(bits, 32)}")
    if bits >= 32:
        return plain
    return replace(
        plain,
        arrow=getattr(pa, name.lower())(),
        input_type=name,
        meaning=f"{low} to {high}",
        check=value_checks.range_check(low, high),
    )


def _wide_integer(name: str) -> Scalar:
    low, high = _bounds(name)
    range_ = f"-2^{high.bit_length()} to 2^{high.bit_length()}-1" if low else f"0 to 2^{name[4:]}-1"
    return _text(name, f"decimal digits, {range_}", value_checks.integer_check(low, high), "0")


def _bounds(name: str) -> tuple[int, int]:
    signed, bits = name.startswith("Int"), int(name.lstrip("UInt"))
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)


def _text(text: str, meaning: str, check: value_checks.Check, default: str) -> Scalar:
    """A type that travels as text and that INSERT parses."""
    return _scalar(text, "string", meaning=meaning, check=check, default=default)


def _counted(
    name: str, arrow: pa.DataType, input_type: str, bounds: tuple[int, int], unit: str
) -> Scalar:
    """Days since 1970 or seconds of a day, whose unit the type does not choose."""
    since = "days since 1970-01-01" if unit == "days" else "seconds"
    return _scalar(
        name,
        "int32",
        arrow=arrow,
        input_type=input_type,
        meaning=f"{since}, {bounds[0]} to {bounds[1]}",
        unit=unit,
        check=value_checks.range_check(*bounds),
    )


def _decimal(text: str, inner: TypeText) -> Scalar:
    precision, scale = (*map(int, inner.expect(1, 2)), 0)[:2]
    if not 0 <= scale <= precision <= 76:
        raise ValueError(f"precision {precision} and scale {scale}")
    digits = f"up to {precision - scale} decimal digits"
    meaning = f"{digits}, a point and up to {scale} more; no exponent" if scale else digits
    return _text(text, meaning, value_checks.decimal_check(precision, scale), "0")


def _fixed_string(text: str, inner: TypeText) -> Scalar:
    length = int(inner.expect(1)[0])
    meaning = f"up to {length} bytes; ClickHouse fills up with zero bytes"
    check = value_checks.length_check(length)
    return _scalar(text, "bytes", meaning=meaning, check=check, default=b"")


def _enum(text: str, inner: TypeText) -> Scalar:
    numbers = enum_numbers(inner)
    default = min(numbers, key=numbers.__getitem__)
    return _text(text, "", value_checks.names_check([*numbers]), default)


def _json(text: str, inner: TypeText) -> Scalar:
    """The type's arguments (typed paths, limits) are the INSERT's to judge."""
    whole = f"JSON({', '.join(inner.arguments)})" if inner.arguments else "JSON"
    kind = _text(text, "the text of a JSON object", value_checks.json_check, "{}")
    return replace(kind, convert=lambda value: f"CAST({value}, {literal(whole)})")


def _datetime(text: str, inner: TypeText) -> Scalar:
    """DateTime, with or without a time zone."""
    inner.expect(0, 1)
    meaning = "seconds since 1970-01-01 00:00:00 UTC"
    return _scalar(text, "uint32", meaning=meaning, unit="seconds")


def _scale(text: str) -> int:
    scale = int(text)
    if not 0 <= scale <= 9:
        raise ValueError(f"scale {scale} is not 0 to 9")
    return scale


def _ticks(text: str, scale: int, bounds: tuple[int, int], meaning: str) -> Scalar:
    """Ticks stay Int64 up to the SELECT: Arrow's timestamps know only scales 0, 3, 6 and 9."""
    return _scalar(
        text,
        "int64",
        meaning=f"{f'10^-{scale} s' if scale else 'seconds'}{meaning}",
        check=value_checks.range_check(*bounds),
        unit=f"ticks of 10^-{scale} s",
    )


def _datetime64(text: str, inner: TypeText) -> Scalar:
    """DateTime64(P), with or without a time zone."""
    scale = _scale(inner.expect(1, 2)[0])
    low, high = (seconds * 10**scale for seconds in _DATETIME64_SECONDS)
    years = f"1900 to {2299 if high - 1 <= _INT64[1] else 2262}"
    kind = _ticks(
        text,
        scale,
        (max(low, _INT64[0]), min(high - 1, _INT64[1])),
        f" since 1970-01-01 00:00:00 UTC, years {years}",
    )
    # CAST would read the number as seconds; reinterpret takes the ticks as they are.
    return replace(kind, convert=lambda value: f"reinterpret({value}, 'DateTime64({scale})')")


def _time64(text: str, inner: TypeText) -> Scalar:
    scale = _scale(inner.expect(1)[0])
    most = (_TIME_SECONDS + 1) * 10**scale - 1
    kind = _ticks(text, scale, (-most, most), ", less than 1000 hours")
    return replace(
        kind,
        unit=f"{kind.unit} of a day",
        # No number can be reinterpreted as a Time64, but a Decimal has the same ticks.
        convert=lambda value: (
            f"CAST(reinterpret({value}, 'Decimal(18, {scale})'), 'Time64({scale})')"
        ),
    )


_WITHOUT_ARGUMENTS = (
    *map(_integer, ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")),
    *map(_wide_integer, ("Int128", "Int256", "UInt128", "UInt256")),
    _scalar("Float32", "float", default=0.0),
    _scalar("Float64", "double", default=0.0),
    _scalar("Bool", "bool", default=False),
    _scalar("String", "string", default=""),
    _scalar(
        "BFloat16",
        "float",
        meaning="keeps the first 8 bits of the fraction's precision, as INSERT does",
        # ClickHouse cuts the lower bits off: of a NaN that has no others, infinity is left.
        prepare=lambda array: pc.if_else(
            pc.is_nan(array), pa.scalar(float("nan"), pa.float32()), array
        ),
    ),
    _counted("Date", pa.uint16(), "UInt16", (0, 65_535), "days"),
    replace(
        _counted("Date32", pa.date32(), "Date32", (-25_567, 120_529), "days"),
        default=dt.date(1900, 1, 1),  # ClickHouse's is the first day, too
    ),
    _counted("Time", pa.int32(), "Int32", (-_TIME_SECONDS, _TIME_SECONDS), "seconds of a day"),
    _text(
        "UUID",
        "36 characters, 8-4-4-4-12 hexadecimal digits",
        value_checks.uuid_check,
        "00000000-0000-0000-0000-000000000000",
    ),
    _text("IPv4", "four decimal numbers, as 192.0.2.1", value_checks.ipv4_check, "0.0.0.0"),  # noqa: S104 - a value, not an address to listen on
    _text("IPv6", "as 2001:db8::1 or ::ffff:192.0.2.1", value_checks.ipv6_check, "::"),
)


def _maker(scalar: Scalar) -> Maker:
    def make(text: str, parsed: TypeText) -> Scalar:
        parsed.expect(0)
        return replace(scalar, text=text)

    return make


MAKERS: dict[str, Maker] = {
    **{scalar.text: _maker(scalar) for scalar in _WITHOUT_ARGUMENTS},
    "Decimal": _decimal,
    "FixedString": _fixed_string,
    "DateTime": _datetime,
    "DateTime64": _datetime64,
    "Time64": _time64,
    "Enum8": _enum,
    "Enum16": _enum,
    "JSON": _json,
}
"""By the name of the type."""
