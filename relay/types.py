"""ClickHouse column types: how a value travels from protobuf through a block into the table.

Receives a type as ClickHouse prints it, gives the protobuf scalar of the row
message, the Arrow type in blocks, and the SQL that turns the block's column into
the table's. Never talks to a server, never changes a value: what the column
cannot hold exactly is reported, so that its message becomes a dead letter.

Every protobuf field is `optional`: absent means NULL in a Nullable column and
the column's DEFAULT in another (`insert_null_as_default` in INSERT SELECT). So
every Arrow column and every input column is nullable, whatever the table says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from relay import fit
from relay.typetext import TypeText, enum_names, parse_text

if TYPE_CHECKING:
    from collections.abc import Callable

_INT64 = (-(2**63), 2**63 - 1)
_DATETIME64_SECONDS = (-2_208_988_800, 10_413_792_000)
"""1900-01-01 to 2300-01-01, end excluded, UTC: what every release of ClickHouse holds. Releases
before 26.7 clamp what lies outside when they show it (ClickHouse pull request 107907)."""
_SHOWN_CHARACTERS = 60


class UnsupportedType(ValueError):
    """A column type that rows cannot carry; the message names it."""


class Narrowed(NamedTuple):
    """A block column, and which of its rows do not fit (None: all fit)."""

    array: pa.Array[Any]
    bad: pa.BooleanArray | None


@dataclass(frozen=True)
class ColumnType:
    """One column type of ClickHouse on its way from protobuf to the table."""

    clickhouse: str
    """The type's full text, as ClickHouse prints it."""
    proto: str
    """The protobuf scalar of its field in the row message."""
    wire: pa.DataType
    """Arrow type of the protobuf scalar, as rows decode to and are encoded from."""
    arrow: pa.DataType
    """Arrow type in blocks."""
    input_type: str
    """Its type in the INSERT's input structure."""
    meaning: str
    """Unit and range, for the `.proto` that producers read; empty where the type says it all."""
    expression: str = "{column}"
    """SQL that turns the input column into the table's type."""
    check: fit.Check | None = field(default=None, repr=False, compare=False)
    """Which values of the protobuf-side array do not fit; None: all do."""

    def select(self, column_sql: str) -> str:
        """SQL for the INSERT's SELECT; `column_sql` is the quoted input column."""
        return self.expression.format(column=column_sql)

    def narrow(self, array: pa.Array[Any]) -> Narrowed:
        """The block's array of a protobuf-side array, whole columns at a time.

        Rows that do not fit are true in `bad` and null in the array.
        """
        bad = None if self.check is None else self.check(array)
        if bad is not None:
            array = pc.if_else(bad, pa.scalar(None, array.type), array)
        if array.type != self.arrow:
            array = array.cast(self.arrow)
        return Narrowed(array, bad)

    def complaint(self, value: object) -> str:
        """Why `value` is bad, for the dead letter's reason."""
        shown = repr(value)
        if len(shown) > _SHOWN_CHARACTERS:
            shown = shown[:_SHOWN_CHARACTERS] + "..."
        limits = f" ({self.meaning})" if self.meaning else ""
        return f"{shown} does not fit {self.clickhouse}{limits}"


def parse_type(text: str) -> ColumnType:
    """The column type that ClickHouse prints as `text`.

    Raises:
        UnsupportedType: rows cannot carry it.
    """
    try:
        inner = _unwrap(parse_text(text))
        make = _MAKERS.get(inner.name)
        if make is not None:
            return make(text, inner)
    except ValueError as cause:
        raise UnsupportedType(f"type {text} is not supported: {cause}") from cause
    raise UnsupportedType(f"type {text} is not supported")


def _unwrap(parsed: TypeText) -> TypeText:
    """The type inside LowCardinality and Nullable: neither changes how values travel."""
    for wrapper in ("LowCardinality", "Nullable"):
        if parsed.name == wrapper:
            if len(parsed.arguments) != 1:
                raise ValueError(f"{wrapper} takes one type")
            parsed = parse_text(parsed.arguments[0])
    return parsed


def _integer(name: str) -> tuple[str, Callable[[str, TypeText], ColumnType]]:
    signed, bits = name.startswith("Int"), int(name.lstrip("UInt"))
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    wide = max(bits, 32)
    proto = f"{'int' if signed else 'uint'}{wide}"

    def make(text: str, inner: TypeText) -> ColumnType:
        inner.expect(0)
        return ColumnType(
            text,
            proto,
            wire=getattr(pa, proto)(),
            arrow=getattr(pa, name.lower())(),
            input_type=f"Nullable({name})",
            meaning=f"{low} to {high}" if bits < wide else "",
            check=fit.range_check(low, high) if bits < wide else None,
        )

    return name, make


def _plain(
    name: str, proto: str, arrow: pa.DataType
) -> tuple[str, Callable[[str, TypeText], ColumnType]]:
    def make(text: str, inner: TypeText) -> ColumnType:
        inner.expect(0)
        return ColumnType(text, proto, arrow, arrow, f"Nullable({name})", "")

    return name, make


def _fixed_string(text: str, inner: TypeText) -> ColumnType:
    length = int(inner.expect(1)[0])
    return ColumnType(
        text,
        "bytes",
        wire=pa.binary(),
        arrow=pa.binary(),
        input_type="Nullable(String)",
        meaning=f"up to {length} bytes; ClickHouse fills up with zero bytes",
        check=fit.length_check(length),
    )


def _date(text: str, inner: TypeText) -> ColumnType:
    inner.expect(0)
    return ColumnType(
        text,
        "int32",
        wire=pa.int32(),
        arrow=pa.uint16(),
        input_type="Nullable(UInt16)",
        meaning="days since 1970-01-01, 0 to 65535",
        check=fit.range_check(0, 65_535),
    )


def _datetime(text: str, inner: TypeText) -> ColumnType:
    inner.expect(0, 1)
    return ColumnType(
        text,
        "uint32",
        wire=pa.uint32(),
        arrow=pa.uint32(),
        input_type="Nullable(UInt32)",
        meaning="seconds since 1970-01-01 00:00:00 UTC",
    )


def _datetime64(text: str, inner: TypeText) -> ColumnType:
    """Ticks stay Int64 up to the SELECT: Arrow's timestamps know only scales 0, 3, 6 and 9."""
    scale = int(inner.expect(1, 2)[0])
    if not 0 <= scale <= 9:
        raise ValueError(f"scale {scale} is not 0 to 9")
    low, high = (seconds * 10**scale for seconds in _DATETIME64_SECONDS)
    unit = f"10^-{scale} s" if scale else "seconds"
    return ColumnType(
        text,
        "int64",
        wire=pa.int64(),
        arrow=pa.int64(),
        input_type="Nullable(Int64)",
        meaning=f"{unit} since 1970-01-01 00:00:00 UTC, years 1900 to "
        f"{2299 if high - 1 <= _INT64[1] else 2262}",
        # CAST would read the number as seconds; reinterpret takes the ticks as they are, but
        # knows no Nullable.
        expression="if(isNull({column}), NULL, "
        f"reinterpret(assumeNotNull({{column}}), 'DateTime64({scale})'))",
        check=fit.range_check(max(low, _INT64[0]), min(high - 1, _INT64[1])),
    )


def _enum(text: str, inner: TypeText) -> ColumnType:
    allowed = enum_names(inner)
    return ColumnType(
        text,
        "string",
        wire=pa.string(),
        arrow=pa.string(),
        input_type="Nullable(String)",
        meaning="",
        check=fit.names_check(allowed),
    )


def _uuid(text: str, inner: TypeText) -> ColumnType:
    inner.expect(0)
    return ColumnType(
        text,
        "string",
        wire=pa.string(),
        arrow=pa.string(),
        input_type="Nullable(String)",
        meaning="36 characters, 8-4-4-4-12 hexadecimal digits",
        check=fit.uuid_check,
    )


_MAKERS: dict[str, Callable[[str, TypeText], ColumnType]] = {
    **dict(map(_integer, ("Int8", "Int16", "Int32", "Int64"))),
    **dict(map(_integer, ("UInt8", "UInt16", "UInt32", "UInt64"))),
    **dict([_plain("Float32", "float", pa.float32()), _plain("Float64", "double", pa.float64())]),
    **dict([_plain("Bool", "bool", pa.bool_()), _plain("String", "string", pa.string())]),
    "FixedString": _fixed_string,
    "Date": _date,
    "DateTime": _datetime,
    "DateTime64": _datetime64,
    "Enum8": _enum,
    "Enum16": _enum,
    "UUID": _uuid,
}
