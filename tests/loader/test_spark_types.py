"""ClickHouse's types as Spark's, and the values in them; no servers, no Spark."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from loader.dataframe.source import arrow_schema, shaped, table_schema
from loader.dataframe.spark_types import arrow_type, converted, kind_of, spark_type
from relay.errors import Refused
from relay.records_pb2 import Block
from relay.schema.types.column_type import COMPOSED
from relay.schema.types.scalar import MAKERS
from tests.loader.blocks import batch

CASES: list[tuple[str, str, list[Any], list[Any] | None]] = [
    ("Bool", "boolean", [True, None], [True, None]),
    ("Int8", "tinyint", [-128], [-128]),
    ("UInt8", "smallint", [255], [255]),
    ("Int16", "smallint", [-32768], [-32768]),
    ("UInt16", "int", [65535], [65535]),
    ("UInt32", "bigint", [2**32 - 1], [2**32 - 1]),
    ("UInt64", "decimal(20,0)", [2**64 - 1, None], [Decimal(2**64 - 1), None]),
    ("Int128", "string", ["-170141183460469231731687303715884105728"], None),
    ("UInt256", "string", ["1"], None),
    ("Float32", "float", [1.5], [1.5]),
    ("BFloat16", "float", [1.5], [1.5]),
    ("Decimal(9, 2)", "decimal(9,2)", ["1.25", "2", None], [Decimal("1.25"), Decimal(2), None]),
    ("Decimal(76, 2)", "string", ["1.25"], None),
    ("Enum8('a' = 1)", "string", ["a"], None),
    ("FixedString(3)", "binary", [b"ab\0"], None),
    ("UUID", "string", ["61f0c404-5cb3-11e7-907b-a6006ad3dba0"], None),
    ("JSON", "string", ['{"a":1}'], None),
    ("Date", "date", [65535, None], [date(2149, 6, 6), None]),
    ("Date32", "date", [-1], [date(1969, 12, 31)]),
    ("DateTime('Asia/Tokyo')", "timestamp", [1], [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)]),
    ("DateTime64(3)", "timestamp", [-1], [datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)]),
    ("DateTime64(9)", "bigint", [15], [15]),
    ("Time", "int", [-5], [-5]),
    ("Time64(3)", "bigint", [5], [5]),
    ("LowCardinality(Nullable(String))", "string", ["a", None], ["a", None]),
    ("SimpleAggregateFunction(sum, UInt64)", "decimal(20,0)", [5], [Decimal(5)]),
    ("Array(Array(Date))", "array<array<date>>", [[[1], []], []], [[[date(1970, 1, 2)], []], []]),
    (
        "Map(String, UInt32)",
        "map<string,bigint>",
        [[{"key": "a", "value": 1}], []],
        [[("a", 1)], []],
    ),
    ("Tuple(a UInt8, b String)", "struct<a:smallint,b:string>", [{"a": 1, "b": "x"}], None),
    ("Nested(a UInt8)", "array<struct<a:smallint>>", [[{"a": 1}]], None),
    (
        "Nullable(Tuple(a UInt8))",
        "struct<a:smallint>",
        [{"given": 1, "tuple": {"a": 1}}, {"given": 0, "tuple": {"a": 0}}],
        [{"a": 1}, None],
    ),
    (
        "Variant(Array(UInt8), String)",
        "struct<as_array_uint8:array<smallint>,as_string:string>",
        [
            {"which": 1, "as_array_uint8": [7], "as_string": ""},
            {"which": 2, "as_array_uint8": [], "as_string": "x"},
            {"which": 0, "as_array_uint8": [], "as_string": ""},
        ],
        [
            {"as_array_uint8": [7], "as_string": None},
            {"as_array_uint8": None, "as_string": "x"},
            None,
        ],
    ),
    ("Point", "struct<x:double,y:double>", [{"x": 1.0, "y": 2.0}], None),
]


@pytest.mark.parametrize(("text", "named", "values", "wanted"), CASES, ids=[c[0] for c in CASES])
def test_every_value_is_there_as_sparks(
    text: str, named: str, values: list[Any], wanted: list[Any] | None
) -> None:
    """No value is changed or cut; None: it is as in the block."""
    kind = kind_of("c", text)
    assert spark_type(kind).simpleString() == named
    array = pa.array(values, kind.arrow)
    found = converted(kind, array)
    found.validate(full=True)
    assert found.type.equals(arrow_type(kind))
    assert found.to_pylist() == (values if wanted is None else wanted)


def test_every_type_has_one() -> None:
    """Whatever the relay writes into blocks, alone, wrapped and as a part."""
    arguments = {"FixedString": "(3)", "Decimal": "(9, 2)", "DateTime64": "(3)", "Time64": "(3)"}
    arguments |= {"Enum8": "('a' = 1)", "Enum16": "('a' = 1)"}
    alone = {name + arguments.get(name, "") for name in MAKERS}
    inside = {"Map": "(String, {})", "Variant": "({}, String)", "Tuple": "(a {})"}
    inside |= {"Nested": "(a {})", "SimpleAggregateFunction": "(any, {})", "Array": "({})"}
    made = alone | {f"{name}{of}".format(one) for name, of in inside.items() for one in alone}
    made |= {name for name in COMPOSED if name not in {*inside, "LowCardinality", "Nullable"}}
    for text in sorted(made - {"Variant(String, String)"}):
        kind = kind_of("c", text)
        empty = converted(kind, pa.array([], kind.arrow))
        assert empty.type.equals(arrow_type(kind)), text


def test_a_type_that_is_not_known_names_its_column() -> None:
    """As in the relay's own errors."""
    with pytest.raises(ValueError, match=r"column c: type Interval is not supported"):
        kind_of("c", "Interval")


def test_a_block_in_the_columns_of_now() -> None:
    """A column that it has not is null, one that is gone is left out, a wider type is cast."""
    block = Block(id="a:d.t:3:0:9", partition=3)
    added = [("_block", pa.string()), ("_partition", pa.int32())]
    now = pa.schema([("id", pa.decimal128(20, 0)), ("new", pa.int64()), *added])
    found = shaped(batch(5, 2), block, now)
    assert found.to_pylist() == [
        {"id": Decimal(n), "new": None, "_block": block.id, "_partition": 3} for n in (5, 6)
    ]


def test_a_column_that_does_not_read_as_now_is_named() -> None:
    """With block, column and both types."""
    block = Block(id="a:d.t:3:0:9")
    with pytest.raises(Refused, match=r"a:d.t:3:0:9: column name was LowCardinality.* int64"):
        shaped(batch(5, 2), block, pa.schema([("name", pa.int64())]))


def test_the_columns_of_a_dataframe() -> None:
    """The block's, and with metadata two more."""
    found = table_schema(batch(0, 1).schema, metadata=True)
    assert found.simpleString() == "struct<id:bigint,name:string,_block:string,_partition:int>"
    assert table_schema(batch(0, 1).schema, metadata=False).names == ["id", "name"]


def one_column(type_: str, values: list[object]) -> pa.RecordBatch:
    """A block's rows of one column `t`."""
    kind = kind_of("t", type_)
    field = pa.field("t", kind.arrow, metadata={b"clickhouse": type_.encode()})
    return pa.RecordBatch.from_arrays([pa.array(values, kind.arrow)], schema=pa.schema([field]))


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("UInt32", "DateTime"),
        ("DateTime", "UInt32"),
        ("DateTime64(6)", "DateTime64(9)"),
        ("DateTime64(9)", "DateTime64(6)"),
        ("DateTime64(7)", "DateTime64(9)"),
        ("Time64(3)", "Time64(6)"),
        ("Time", "Time64(0)"),
        ("DateTime", "Date"),
    ],
)
def test_a_column_counted_in_another_unit_is_refused(was: str, now: str) -> None:
    """ClickHouse has converted its rows; the block's numbers would be other times."""
    wanted = arrow_schema(table_schema(one_column(now, []).schema, metadata=False))
    with pytest.raises(
        Refused, match=rf"column t was {re.escape(was)} .* read as {re.escape(now)}"
    ):
        shaped(one_column(was, [3_600]), Block(id="b"), wanted)
    inside = one_column(f"Array({now})", [])
    wanted = arrow_schema(table_schema(inside.schema, metadata=False))
    with pytest.raises(Refused, match="another value"):
        shaped(one_column(f"Array({was})", [[3_600]]), Block(id="b"), wanted)


@pytest.mark.parametrize(
    ("was", "now", "value", "read"),
    [
        ("DateTime", "DateTime64(3)", 3_600, datetime(1970, 1, 1, 1, tzinfo=UTC)),
        ("DateTime64(3)", "DateTime64(6)", 3_600, datetime(1970, 1, 1, 0, 0, 3, 600_000, UTC)),
        ("Date", "DateTime", 1, datetime(1970, 1, 2, tzinfo=UTC)),
        ("Time64(3)", "Nullable(Time64(3))", 3_600, 3_600),
        ("UInt8", "Int64", 7, 7),
    ],
)
def test_a_column_that_means_the_same_is_read(was: str, now: str, value: int, read: object) -> None:
    wanted = arrow_schema(table_schema(one_column(now, []).schema, metadata=False))
    found = shaped(one_column(was, [value]), Block(id="b"), wanted)
    assert found.column(0).to_pylist() == [read]


@pytest.mark.parametrize("around", ["{}", "Array({})", "Map(String, {})"])
def test_a_part_that_the_newest_type_has_not_is_no_loss_without_a_word(around: str) -> None:
    """Arrow would cast it away; a part that is new is null."""
    value: object = {"a": 1, "b": 2}
    value = {"{}": value, "Array({})": [value]}.get(around, [("k", value)])
    two, one = (around.format(of) for of in ("Tuple(a Int64, b Int64)", "Tuple(a Int64)"))
    three = around.format("Tuple(a Int64, b Int64, c Int64)")
    block = one_column(two, [value])
    wanted = {
        of: arrow_schema(table_schema(one_column(of, []).schema, metadata=False))
        for of in (one, three)
    }
    with pytest.raises(Refused, match="a struct has the parts a, b, and needs a"):
        shaped(block, Block(id="b"), wanted[one])
    assert "None" in str(shaped(block, Block(id="b"), wanted[three]).column(0).to_pylist())


@pytest.mark.parametrize("around", ["{}", "Array({})", "Map(String, {})", "Tuple(a {})"])
@pytest.mark.parametrize(
    ("was", "now", "value", "read"),
    [
        ("Float64", "Float32", 6e38, None),
        ("UInt8", "Bool", 2, None),
        ("Float64", "Float32", 0.5, 0.5),
        ("UInt8", "Bool", 1, True),
        ("Decimal(18, 8)", "String", "0.00000001", "0.00000001"),
    ],
)
def test_a_number_is_what_it_was_or_refused(
    around: str, was: str, now: str, value: object, read: object
) -> None:
    """Arrow would make infinity and true of those that the newest type does not hold."""

    def held(one: object) -> object:
        return {"Array({})": [one], "Map(String, {})": [("k", one)], "Tuple(a {})": {"a": one}}.get(
            around, one
        )

    columns = table_schema(one_column(around.format(now), []).schema, metadata=False)
    rows = one_column(around.format(was), [held(value)])
    if read is None:
        with pytest.raises(Refused, match=r"column t was .* cannot be read as"):
            shaped(rows, Block(id="b"), arrow_schema(columns))
    else:
        found = shaped(rows, Block(id="b"), arrow_schema(columns))
        assert found.column(0).to_pylist() == [held(read)]
