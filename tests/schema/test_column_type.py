"""Types as ClickHouse prints them, and which values fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from relay.schema.types.column_type import UnsupportedType, parse_type
from relay.schema.types.type_text import enum_numbers, parse_text, texts_for_enums
from tests.schema.rows import codec_of

if TYPE_CHECKING:
    from tests.schema.engine import Engine

UNSUPPORTED = [
    "AggregateFunction(uniq, UInt64)",
    "SimpleAggregateFunction(sum, Double)",
    "SimpleAggregateFunction(sum)",
    "Nullable(Array(String))",
    "Nullable(Map(String, UInt8))",
    "LowCardinality(Array(String))",
    "Array(Nothing)",
    "Array(String, String)",
    "Map(String)",
    "Tuple()",
    "Tuple(a UInt8, b Nothing)",
    "Variant(String, Double)",
    "Point(2)",
    "IntervalSecond",
    "QBit(Float32, 4)",
    "Nothing",
    "Object('json')",
    "DateTime64(10)",
    "DateTime64",
    "Time64(10)",
    "Decimal(77, 1)",
    "Decimal(9, 10)",
    "Decimal",
    "String(3)",
    "Int8(1)",
    "FixedString",
    "FixedString(x)",
    "Nullable(String, String)",
    "Nullable(Nullable(String))",
    "Enum8('a')x",
    "Enum8(a = 1)",
    "Enum8()",
    "",
    "String)",
    "'; DROP TABLE t; --",
]


@pytest.mark.parametrize("text", UNSUPPORTED)
def test_other_types_are_refused_by_name(text: str) -> None:
    """A type that rows cannot carry is an error that quotes it."""
    with pytest.raises(UnsupportedType) as refused:
        parse_type(text)
    assert f"type {text} is not supported" in str(refused.value)


def test_a_codec_names_table_column_and_type() -> None:
    """The error of a table with such a column names all three."""
    with pytest.raises(UnsupportedType, match=r"column tags of shop\.orders: .*Array\(Nothing\)"):
        codec_of({"id": "Int64", "tags": "Array(Nothing)"})


@pytest.mark.parametrize(
    ("text", "proto", "arrow"),
    [
        ("Int8", "int32", pa.int8()),
        ("UInt16", "uint32", pa.uint16()),
        ("Nullable(UInt64)", "uint64", pa.uint64()),
        ("Float32", "float", pa.float32()),
        ("LowCardinality(Nullable(String))", "string", pa.string()),
        ("FixedString(16)", "bytes", pa.binary()),
        ("Date", "int32", pa.uint16()),
        ("DateTime", "uint32", pa.uint32()),
        ("DateTime('Europe/Berlin')", "uint32", pa.uint32()),
        ("DateTime64(6, 'UTC')", "int64", pa.int64()),
        ("UUID", "string", pa.string()),
        ("Enum16('a' = -5, 'b' = 300)", "string", pa.string()),
    ],
)
def test_mapping(text: str, proto: str, arrow: pa.DataType) -> None:
    """Each type has the protobuf scalar and the Arrow type that the contract gives it."""
    kind = parse_type(text)
    assert (kind.clickhouse, kind.proto, kind.arrow) == (text, proto, arrow)
    assert kind.input_type.startswith("Nullable(")


@pytest.mark.parametrize(
    ("text", "fits", "misfits"),
    [
        ("Int8", [-128, 127], [-129, 128, 2**31 - 1, -(2**31)]),
        ("Int16", [-32_768, 32_767], [-32_769, 32_768]),
        ("UInt8", [0, 255], [256, 2**32 - 1]),
        ("UInt16", [0, 65_535], [65_536]),
        ("Int32", [-(2**31), 2**31 - 1], []),
        ("UInt64", [0, 2**64 - 1], []),
        ("Date", [0, 65_535], [-1, 65_536]),
        ("DateTime64(0)", [-2_208_988_800, 10_413_791_999], [-2_208_988_801, 10_413_792_000]),
        ("DateTime64(8)", [10_413_792_000 * 10**8 - 1], [10_413_792_000 * 10**8, 2**63 - 1]),
        ("DateTime64(9)", [2**63 - 1, -2_208_988_800 * 10**9], [-(2**63)]),
        ("FixedString(2)", [b"", b"ab"], [b"abc"]),
        ("Enum8('a' = 1, '' = 2)", ["a", ""], ["A", " a", "1"]),
        ("UUID", ["0" * 8 + "-0000-0000-0000-" + "F" * 12], ["", "0" * 36, "0" * 32]),
    ],
)
def test_narrow_finds_exactly_what_does_not_fit(text: str, fits: list, misfits: list) -> None:
    """The mask is true for each value that does not fit, and for no other and no null."""
    kind = parse_type(text)
    clean = kind.narrow(pa.array([*fits, None], kind.wire))
    assert clean.bad is None
    assert clean.array.equals(pa.array([*fits, None], kind.arrow))
    if misfits:
        mixed = kind.narrow(pa.array([*fits, None, *misfits], kind.wire))
        assert mixed.bad is not None
        assert mixed.bad.to_pylist() == [False] * (len(fits) + 1) + [True] * len(misfits)
        assert mixed.array.to_pylist()[: len(fits)] == fits
        assert mixed.array.type == kind.arrow
        for misfit in misfits:
            assert text in kind.complaint(misfit)


def test_a_long_value_is_shown_short() -> None:
    """A dead letter's reason stays short however long the value is."""
    assert len(parse_type("UUID").complaint("x" * 1_000_000)) < 200


def test_enum_names_as_the_engine_prints_them(engine: Engine) -> None:
    """Names with quotes, commas, brackets, backslashes and control characters are read back
    from the type as ClickHouse itself prints it."""
    names = ["a, b", "it's", "(x)", "\\", "new\nline", "tab\t", "nul\0", "ü 日本", " ", "=1", "''"]
    literal = ", ".join(
        "'" + name.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\0") + f"' = {at}"
        for at, name in enumerate(names, -3)
    )
    engine.query("DROP TABLE IF EXISTS shop.e SYNC")
    engine.query(f"CREATE TABLE shop.e (v Enum16({literal})) ENGINE = Memory")
    printed = engine.rows("SELECT type FROM system.columns WHERE table = 'e'")[0][0]
    assert sorted(enum_numbers(parse_text(printed))) == sorted(names)


AB, BC = "Enum8('a' = 1, 'b' = 2)", "Enum16('b' = 1, 'Map(' = 2)"


@pytest.mark.parametrize(
    ("text", "other", "through"),
    [
        (AB, BC, "String"),
        (AB, f"Nullable({BC})", "String"),
        (AB, "Int8", AB),
        ("UInt8", BC, "UInt8"),
        (f"Nullable({AB})", BC, "Nullable(String)"),
        (f"Array(Nullable({AB}))", f"Array({BC})", "Array(Nullable(String))"),
        (
            f"Map(LowCardinality(String), Array({AB}))",
            f"Map(String, Array({BC}))",
            "Map(LowCardinality(String), Array(String))",
        ),
        (f"Map({AB}, {AB})", f"Map(Int8, {BC})", f"Map({AB}, String)"),
        (f"Tuple({AB}, Decimal(9, 2))", f"Tuple({BC}, Int8)", "Tuple(String, Decimal(9, 2))"),
        (f"Tuple({AB}, {AB})", f"Tuple({BC})", f"Tuple(String, {AB})"),
        (
            f"Tuple(a {AB}, `b c` Nullable({AB}))",
            f"Tuple(`b c` {BC}, a UInt8)",
            f"Tuple(a {AB}, `b c` Nullable(String))",
        ),
        (f"Tuple(a {AB})", f"Tuple(b {BC})", f"Tuple(a {AB})"),
        (f"Nested(a {AB}, b Int8)", f"Nested(a {BC}, b Int8)", "Nested(a String, b Int8)"),
        (f"Variant({AB}, Int8)", f"Variant({BC}, Int8)", f"Variant({AB}, Int8)"),
        (f"Array({AB})", BC, f"Array({AB})"),
    ],
)
def test_text_stands_for_what_is_an_enum_in_both(text: str, other: str, through: str) -> None:
    assert texts_for_enums(text, other) == through
