"""The tables of types: ClickHouse's in messages and blocks, and in Spark.

Names, protobuf and Arrow come from the code; only the last column is written here.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from loader.dataframe.spark_types import kind_of, spark_type
from relay.schema.types.column_type import parse_type


class Row(NamedTuple):
    """Types that are alike.

    Attributes:
        names: as ClickHouse writes them. T, K and V stand for any type, P, S, N and f for
            arguments.
        outside: the range, and what becomes of a value outside it.
        arrow: instead of the code's, where that is too long to read.
    """

    names: tuple[str, ...]
    outside: str
    arrow: str = ""


TYPES = (
    Row(("Int8", "Int16"), "dead letter"),
    Row(("Int32", "Int64"), "as the field's"),
    Row(("UInt8", "UInt16"), "dead letter"),
    Row(("UInt32", "UInt64"), "as the field's"),
    Row(
        ("Int128", "Int256", "UInt128", "UInt256"),
        "decimal digits; any other text, or a number out of range: dead letter",
    ),
    Row(("Float32", "Float64"), "as the field's, NaN and infinities included"),
    Row(("BFloat16",), "as the field's; ClickHouse cuts it to 8 significant bits, as INSERT does"),
    Row(
        ("Decimal(P, S)",),
        "digits, at most P - S, a point, at most S more digits; an exponent, more digits or any "
        "other text: dead letter",
    ),
    Row(("Bool",), "as the field's"),
    Row(("String",), "as the field's; not UTF-8: dead letter"),
    Row(
        ("FixedString(N)",),
        "longer than N: dead letter; shorter: padded with zero bytes, as INSERT does",
    ),
    Row(("Enum8('a' = 1)", "Enum16('a' = 1)"), "the name; an unknown one: dead letter"),
    Row(("UUID", "IPv4", "IPv6"), "the usual text; any other: dead letter"),
    Row(
        ("Date", "Date32"),
        "days since 1970-01-01; after 2149-06-06 (Date32: before 1900 or after 2299): dead letter",
    ),
    Row(("DateTime",), "Unix seconds, as the field's"),
    Row(
        ("DateTime64(P)",),
        "ticks of 10⁻ᴾ seconds since 1970; before 1900 or after 2299 (2262 where P = 9): dead "
        "letter",
    ),
    Row(
        ("Time", "Time64(P)"),
        "seconds, or ticks of 10⁻ᴾ seconds; 1000 hours or more, or less than -1000: dead letter",
    ),
    Row(
        ("JSON",),
        "the text of an object; anything else, a doubled key or path, a number beyond Float64, "
        "half a surrogate pair: dead letter",
    ),
    Row(("LowCardinality(T)", "SimpleAggregateFunction(f, T)"), "as T"),
    Row(("Nullable(T)",), "as T; left out: NULL"),
    Row(("Nullable(Tuple(a K))",), "as Tuple; left out: NULL"),
    Row(("Array(T)",), "as T, each element"),
    Row(
        ("Nested(a K, b V)",),
        "as its parts. Flattened, its columns are Arrays `n.a`, `n.b`: one that is left out is "
        "filled up, other lengths are a dead letter",
    ),
    Row(
        ("Map(K, V)",),
        "as K and V. Where protobuf does not allow the key type: repeated messages with `key` and "
        "`value`",
    ),
    Row(
        ("Tuple(a K, b V)",),
        "as its parts; a part left out is its type's default, or NULL where it is Nullable",
    ),
    Row(("Variant(K, V)",), "a `oneof`; none: NULL; a bad value, or two at once: dead letter"),
    Row(
        ("Dynamic",),
        "a `oneof` of Bool, Float64, Int64, String, UInt64; two at once: dead letter",
    ),
    Row(("Point",), "as the fields'"),
    Row(("Ring", "LineString"), "as the fields'"),
    Row(("Polygon", "MultiLineString"), "as the fields'"),
    Row(("MultiPolygon",), "as the fields'"),
    Row(
        ("Geometry",),
        "a `oneof` of the six above; two at once: dead letter",
        "a struct, as Variant",
    ),
)

# What stands for a type while it is parsed, with its protobuf and Arrow types, which no type made
# of others brings along by itself.
_PARTS = {
    "T": ("Int64", "int64", "int64"),
    "K": ("String", "string", "string"),
    "V": ("Float32", "float", "float"),
}
_SIZES = {"P": "9", "S": "2", "N": "5", "f": "sum"}


def parsed(name: str) -> str:
    """The name with a type or number for each letter that stands for one."""
    for letter, (text, _, _) in _PARTS.items():
        name = re.sub(rf"\b{letter}\b", text, name)
    for letter, size in _SIZES.items():
        name = re.sub(rf"\b{letter}\b", size, name)
    return name


def _shown(text: str, name: str, which: int) -> str:
    """The code's word for a type, with the letters of its name again."""
    for letter, kinds in _PARTS.items():
        if re.search(rf"\b{letter}\b", name):
            text = re.sub(rf"(?<![\w])as_{kinds[which]}\b|as_{kinds[0].lower()}\b", "as_…", text)
            text = re.sub(rf"\b{kinds[which]}\b", letter, text)
    return re.sub(r"\bitem: ", "", text)


def types_table() -> str:
    """ClickHouse types as protobuf and Arrow."""
    last = "range, and what becomes of a value outside it"
    lines = [f"| ClickHouse | protobuf | Arrow in blocks | {last} |", "|---|---|---|---|"]
    for row in TYPES:
        kinds = [(name, parse_type(parsed(name))) for name in row.names]
        proto = dict.fromkeys(_shown(str(kind.proto), name, 1) for name, kind in kinds)
        arrow = dict.fromkeys(_shown(str(kind.arrow), name, 2) for name, kind in kinds)
        lines.append(
            f"| {', '.join(row.names)} | {', '.join(proto)} | {row.arrow or ', '.join(arrow)} "
            f"| {row.outside} |"
        )
    return "\n".join(lines)


IN_SPARK = (
    ("Int8", ""),
    ("Int16, UInt8", ""),
    ("Int32, UInt16", ""),
    ("Int64, UInt32", ""),
    ("UInt64", ""),
    ("Int128, Int256, UInt128, UInt256", "decimal digits: Spark's decimals have 38 at most"),
    ("Float32, BFloat16", ""),
    ("Float64", ""),
    ("Decimal(9, 2)", "the column's own precision and scale"),
    ("Decimal(76, 2)", "any with more than 38 digits"),
    ("Bool", ""),
    ("String, Enum8('a' = 1), Enum16('a' = 1), UUID, IPv4, IPv6, JSON", ""),
    ("FixedString(5)", "as sent: not filled up"),
    ("Date, Date32", ""),
    ("DateTime, DateTime64(3), DateTime64(6)", "DateTime64 with up to 6 digits"),
    ("DateTime64(9)", "more than 6 digits: ticks since 1970"),
    ("Time", "seconds"),
    ("Time64(3)", "ticks"),
    (
        "Nullable(Int64), LowCardinality(Int64), SimpleAggregateFunction(sum, Int64)",
        "as the type inside",
    ),
    ("Array(Int64)", ""),
    ("Map(String, Int64)", ""),
    ("Tuple(a Int64, b String), Nullable(Tuple(a Int64, b String))", ""),
    ("Nested(a Int64, b String)", ""),
    ("Variant(Int64, String)", "the member that is not null is the value"),
    ("Dynamic", "as Variant"),
    ("Geometry", "as Variant, of the six below"),
    ("Point", ""),
    ("Ring, LineString", ""),
    ("Polygon, MultiLineString", ""),
    ("MultiPolygon", ""),
)
"""Examples of every kind, with what else is to be known."""


def split(names: str) -> list[str]:
    """What stands between the commas outside of brackets."""
    return [name.strip() for name in re.findall(r"(?:[^,(]|\((?:[^()]|\([^()]*\))*\))+", names)]


def spark_table() -> str:
    """ClickHouse types as Spark's.

    Raises:
        ValueError: two types of one row are not one type in Spark.
    """
    lines = ["| ClickHouse | Spark | note |", "|---|---|---|"]
    for names, note in IN_SPARK:
        made = {spark_type(kind_of("c", name)).simpleString() for name in split(names)}
        if len(made) != 1:
            raise ValueError(f"{names}: {sorted(made)}")
        shown = made.pop()
        if names == "Geometry":
            shown = "struct of the six"
        lines.append(f"| {names} | {shown} | {note} |")
    return "\n".join(lines)
