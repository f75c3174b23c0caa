"""Types without parts: their protobuf scalars, Arrow types, ranges and defaults.

Receives a type's text, taken apart, gives its kind. Every range that the protobuf scalar has
and the type does not is checked; what a text stands for is checked as text. Nothing wraps.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from relay.clickhouse.quoting import literal
from relay.schema.types import temporal, value_checks
from relay.schema.types.kind import Maker, Scalar
from relay.schema.types.proto_shape import Shape
from relay.schema.types.type_text import TypeText, enum_numbers


def _integer(name: str) -> Scalar:
    low, high = _bounds(name)
    bits = high.bit_length() + (low < 0)
    proto = f"{'int' if low else 'uint'}{max(bits, 32)}"
    return Scalar(
        name,
        Shape(proto),
        wire=getattr(pa, proto)(),
        arrow=getattr(pa, name.lower())(),
        input_type=name,
        meaning=f"{low} to {high}" if bits < 32 else "",
        check=value_checks.range_check(low, high) if bits < 32 else None,
    )


def _wide_integer(name: str) -> Scalar:
    low, high = _bounds(name)
    range_ = f"-2^{high.bit_length()} to 2^{high.bit_length()}-1" if low else f"0 to 2^{name[4:]}-1"
    return _text(name, f"decimal digits, {range_}", value_checks.integer_check(low, high), "0")


def _bounds(name: str) -> tuple[int, int]:
    signed, bits = name.startswith("Int"), int(name.lstrip("UInt"))
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)


def _plain(name: str, proto: str, arrow: pa.DataType, default: object) -> Scalar:
    return Scalar(name, Shape(proto), arrow, arrow, name, default=default)


def _text(text: str, meaning: str, check: value_checks.Check, default: str) -> Scalar:
    """A type that travels as text and that INSERT parses."""
    plain = _plain(text, "string", pa.string(), default)
    return replace(plain, input_type="String", meaning=meaning, check=check)


def _decimal(text: str, inner: TypeText) -> Scalar:
    precision, scale = (*map(int, inner.expect(1, 2)), 0)[:2]
    if not 0 <= scale <= precision <= 76:
        raise ValueError(f"precision {precision} and scale {scale}")
    digits = f"up to {precision - scale} decimal digits"
    meaning = f"{digits}, a point and up to {scale} more; no exponent" if scale else digits
    return _text(text, meaning, value_checks.decimal_check(precision, scale), "0")


def _fixed_string(text: str, inner: TypeText) -> Scalar:
    length = int(inner.expect(1)[0])
    return Scalar(
        text,
        Shape("bytes"),
        wire=pa.binary(),
        arrow=pa.binary(),
        input_type="String",
        meaning=f"up to {length} bytes; ClickHouse fills up with zero bytes",
        check=value_checks.length_check(length),
        default=b"",
    )


def _enum(text: str, inner: TypeText) -> Scalar:
    numbers = enum_numbers(inner)
    default = min(numbers, key=numbers.__getitem__)
    return _text(text, "", value_checks.names_check([*numbers]), default)


def _json(text: str, inner: TypeText) -> Scalar:
    """The type's arguments (typed paths, limits) are the INSERT's to judge."""
    whole = f"JSON({', '.join(inner.arguments)})" if inner.arguments else "JSON"
    kind = _text(text, "the text of a JSON object", value_checks.json_check, "{}")
    return replace(kind, convert=lambda value: f"CAST({value}, {literal(whole)})")


_WITHOUT_ARGUMENTS = (
    *map(_integer, ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")),
    *map(_wide_integer, ("Int128", "Int256", "UInt128", "UInt256")),
    _plain("Float32", "float", pa.float32(), 0.0),
    _plain("Float64", "double", pa.float64(), 0.0),
    _plain("Bool", "bool", pa.bool_(), default=False),
    _plain("String", "string", pa.string(), ""),
    Scalar(
        "BFloat16",
        Shape("float"),
        wire=pa.float32(),
        arrow=pa.float32(),
        input_type="Float32",
        meaning="keeps the first 8 bits of the fraction's precision, as INSERT does",
        # ClickHouse cuts the lower bits off: of a NaN that has no others, infinity is left.
        prepare=lambda array: pc.if_else(
            pc.is_nan(array), pa.scalar(float("nan"), pa.float32()), array
        ),
    ),
    *temporal.WITHOUT_ARGUMENTS,
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
    "DateTime": temporal.datetime,
    "DateTime64": temporal.datetime64,
    "Time64": temporal.time64,
    "Enum8": _enum,
    "Enum16": _enum,
    "JSON": _json,
}
"""By the name of the type."""
