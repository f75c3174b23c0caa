"""ClickHouse column types: how a value travels from protobuf through a block into the table.

Receives a type as ClickHouse prints it, gives its protobuf field in the row message, the
Arrow type in blocks, and the SQL that turns the block's column into the table's. Never talks
to a server, never changes a value: what the column cannot hold is reported, so that its
message becomes a dead letter.

A scalar's protobuf field is `optional`: absent means NULL in a Nullable column and the
column's DEFAULT in another (`insert_null_as_default` in INSERT SELECT), so its Arrow and
input columns are nullable, whatever the table says. An Array or Map has no absence in
protobuf; it, a Tuple and a Variant are empty where they are left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from relay.schema.types import value_checks
from relay.schema.types.kind import Narrowed, Nullable, Scalar, TypeKind, value_text
from relay.schema.types.nested import Array, Map, Tuple
from relay.schema.types.proto_shape import WIDENING, field_names
from relay.schema.types.scalar import MAKERS
from relay.schema.types.type_text import TypeText, named, parse_text
from relay.schema.types.variant import NullableTuple, Variant

CLICKHOUSE_TYPE = b"clickhouse"
"""Key of a block's field metadata: the ClickHouse type for which the relay wrote the column."""

_POINT = "Tuple(x Float64, y Float64)"
_GEO = {
    "Point": _POINT,
    "Ring": "Array(Point)",
    "LineString": "Array(Point)",
    "MultiLineString": "Array(LineString)",
    "Polygon": "Array(Ring)",
    "MultiPolygon": "Array(Polygon)",
    "Geometry": "Variant(LineString, MultiLineString, MultiPolygon, Point, Polygon, Ring)",
    "Dynamic": "Variant(Bool, Float64, Int64, String, UInt64)",
}
"""Types that are others under a name, as the row message sees them."""
_NAME_CHARACTERS = 40


class UnsupportedType(ValueError):
    """A column type that rows cannot carry; the message names it."""


@dataclass(frozen=True)
class ColumnType:
    """One column type of ClickHouse on its way from protobuf to the table."""

    clickhouse: str
    """The type's full text, as ClickHouse prints it."""
    kind: TypeKind

    @property
    def proto(self) -> str:
        """Its protobuf field's type: a scalar's name, `repeated ...`, `map<...>` or `message`."""
        return str(self.kind.shape)

    @property
    def wire(self) -> pa.DataType:
        """Arrow type of the protobuf field, as rows decode to and are encoded from."""
        return self.kind.wire

    @property
    def arrow(self) -> pa.DataType:
        """Arrow type in blocks."""
        return self.kind.arrow

    @property
    def input_type(self) -> str:
        """Its type in the INSERT's input structure."""
        return self._input_kind.input_type

    @property
    def scalar(self) -> Scalar | None:
        """The type of the values, without Nullable; None where they have parts."""
        kind = self.kind.inner if isinstance(self.kind, Nullable) else self.kind
        return kind if isinstance(kind, Scalar) else None

    @property
    def _input_kind(self) -> TypeKind:
        """The kind of the input column: every scalar's has NULL, for a field left out."""
        kind = self.kind
        return Nullable.of(kind.text, kind) if isinstance(kind, Scalar) else kind

    @property
    def meaning(self) -> str:
        """Unit and range, for the `.proto` that producers read; empty where the type says it."""
        return self.scalar.meaning if self.scalar else ""

    @property
    def check(self) -> value_checks.Check | None:
        """Which values of a scalar's wire array do not fit; None: all do."""
        return self.scalar.check if self.scalar else None

    def select(self, column_sql: str) -> str:
        """Return SQL for the INSERT's SELECT; `column_sql` is the quoted input column."""
        return self._input_kind.sql(column_sql)

    def narrow(self, array: pa.Array[Any]) -> Narrowed:
        """Return the block's array of a protobuf-side array, whole columns at a time.

        Rows that do not fit are true in `bad`; what the array has in them is of no use.
        """
        return self._input_kind.block(array)

    def complaint(self, value: object) -> str:
        """Return why `value` is bad."""
        limits = f" ({self.meaning})" if self.meaning else ""
        return f"{value_text(value)} does not fit {self.clickhouse}{limits}"

    def why(self, array: pa.Array[Any]) -> str:
        """Return what in the single value of a protobuf-side array is bad, for the dead letter."""
        return self.complaint(array[0].as_py()) if self.scalar else self.kind.why(array)


def parse_type(text: str) -> ColumnType:
    """Return the column type that ClickHouse prints as `text`.

    Raises:
        UnsupportedType: rows cannot carry it.
    """
    try:
        return ColumnType(text, _kind(text))
    except ValueError as cause:
        because = f": {cause}" if str(cause) else ""
        raise UnsupportedType(f"type {text} is not supported{because}") from cause


def recorded_type(field: pa.Field[Any]) -> str:
    """Return the ClickHouse type for which the relay wrote a column; empty where it says none."""
    return (field.metadata or {}).get(CLICKHOUSE_TYPE, b"").decode()


def reads_alike(before: str, after: str) -> bool:
    """Return whether what producers send for a column of type `before` means the same for `after`.

    So it is where both are the same scalar in protobuf, or the new one a wider, in the same
    unit: what the one holds and the other does not is found value by value. Types made of
    others are alike only if equal.
    """
    if before == after:
        return True
    try:
        old, new = (parse_type(text).scalar for text in (before, after))
    except UnsupportedType:
        return False
    if not (old and new and old.unit == new.unit):
        return False
    return old.shape == new.shape or (str(old.shape), str(new.shape)) in WIDENING


def _kind(text: str) -> TypeKind:
    """The kind of a type, with what is around and inside it.

    Raises:
        ValueError: there is none; the text says more where more can be said.
    """
    parsed = parse_text(text)
    if parsed.name in _GEO:
        if parsed.name != "Dynamic":
            parsed.expect(0)
        return replace(_kind(_GEO[parsed.name]), text=text)
    if maker := _MAKERS.get(parsed.name) or MAKERS.get(parsed.name):
        return maker(text, parsed)
    raise ValueError("" if parsed.name == text else f"rows cannot carry a {parsed.name}")


def _low_cardinality(text: str, parsed: TypeText) -> TypeKind:
    inner = _kind(parsed.expect(1)[0])
    if not isinstance(inner.inner if isinstance(inner, Nullable) else inner, Scalar):
        raise ValueError(f"LowCardinality of {inner.text}")  # noqa: TRY004 - a text, no argument
    return replace(inner, text=text)


def _nullable(text: str, parsed: TypeText) -> TypeKind:
    inner = _kind(parsed.expect(1)[0])
    if isinstance(inner, Tuple):
        return NullableTuple.of(text, inner)
    if not isinstance(inner, Scalar):
        raise ValueError(f"Nullable of {inner.text}")  # noqa: TRY004 - as above
    return Nullable.of(text, inner)


def _aggregated(_: str, parsed: TypeText) -> TypeKind:
    """SimpleAggregateFunction(f, T) holds a T."""
    return _kind(parsed.expect(2)[1])


def _array(text: str, parsed: TypeText) -> TypeKind:
    return Array.of(text, _kind(parsed.expect(1)[0]))


def _map(text: str, parsed: TypeText) -> TypeKind:
    key, value = parsed.expect(2)
    return Map.of_entries(text, _kind(key), _kind(value))


def _tuple(text: str, parsed: TypeText) -> TypeKind:
    if not parsed.arguments or parsed.arguments == ("",):
        raise ValueError("a Tuple without elements")
    pairs = [named(argument) for argument in parsed.arguments]
    names = field_names((at, name or f"v{at}") for at, (name, _) in enumerate(pairs, 1))
    return Tuple.of(text, list(names.values()), [_kind(inner) for _, inner in pairs])


def _nested(text: str, parsed: TypeText) -> TypeKind:
    """Nested as a whole (`flatten_nested = 0`); else its columns are Arrays called `n.a`."""
    return replace(_kind(f"Array(Tuple({', '.join(parsed.arguments)}))"), text=text)


def _variant(text: str, parsed: TypeText) -> TypeKind:
    kinds = [_kind(argument) for argument in parsed.arguments]
    names = field_names((at, f"as_{_words(kind.text)}") for at, kind in enumerate(kinds, 1))
    return Variant.of(text, list(names.values()), kinds)


def _words(text: str) -> str:
    """A type's text as part of a field name: without the names of an Enum and the like."""
    bare = re.sub(r"'(?:[^'\\]|\\.|'')*'|`(?:[^`\\]|\\.|``)*`", "", text)
    return "_".join(re.findall(r"[A-Za-z0-9]+", bare)).lower()[:_NAME_CHARACTERS]


_MAKERS = {
    "LowCardinality": _low_cardinality,
    "Nullable": _nullable,
    "SimpleAggregateFunction": _aggregated,
    "Array": _array,
    "Map": _map,
    "Tuple": _tuple,
    "Nested": _nested,
    "Variant": _variant,
}
COMPOSED = frozenset({*_MAKERS, *_GEO})
"""Names of the types made of others; relay.schema.types.scalar.MAKERS has the rest."""
