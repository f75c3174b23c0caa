"""Values of types made of types, from Python and from Arrow, as the row message holds them."""

from __future__ import annotations

import datetime as dt
import ipaddress
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from relay.produce.arrow_columns import BadValue, BatchOrigin, row_columns
from relay.produce.file_options import FileOptions
from relay.produce.file_rows import RowFile
from relay.produce.row_encoder import RowEncoder
from relay.rows.decode import decode
from relay.schema.evolution import ColumnDef
from tests.produce.codecs import codec
from tests.schema.rows import binary, decode_rows, row_batch

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = {
    "list": "Array(UInt8)",
    "maybe": "Array(Nullable(Date32))",
    "grid": "Array(Array(String))",
    "map": "Map(String, Array(Int16))",
    "names": "Map(String, String)",
    "pairs": "Map(Float64, Nullable(Bool))",
    "pair": "Tuple(x Int8, y Array(String))",
    "point": "Point",
    "none": "Nullable(Tuple(x Int8))",
    "any": "Variant(Array(String), String, UInt64)",
    "big": "Int256",
    "money": "Decimal(20, 8)",
    "ip": "IPv4",
    "time": "Time64(3)",
    "json": "JSON",
}
CODEC = codec(*(ColumnDef(name, type_) for name, type_ in COLUMNS.items()))
NEW_YEAR = dt.date(2020, 1, 1)

CASES: list[tuple[str, Any, Any, Any]] = [
    # column, in Python, in Arrow, in the block
    ("list", [1, 255], pa.array([[1, 255]]), [1, 255]),
    ("list", [], pa.array([[]], pa.list_(pa.int8())), []),
    ("maybe", [NEW_YEAR, None], pa.array([[NEW_YEAR, None]]), [NEW_YEAR, None]),
    ("grid", [["a"], []], pa.array([[["a"], []]]), [["a"], []]),
    (
        "map",
        {"k": [1], "l": []},
        pa.array([[("k", [1]), ("l", [])]], pa.map_(pa.string(), pa.list_(pa.int64()))),
        [{"key": "k", "value": [1]}, {"key": "l", "value": []}],
    ),
    (
        "pairs",
        [(0.5, None), (1.5, True)],
        pa.array([[{"key": 0.5, "value": None}, {"key": 1.5, "value": True}]]),
        [{"key": 0.5, "value": None}, {"key": 1.5, "value": True}],
    ),
    (
        "map",
        [{"key": "k", "value": [1]}, {"value": [], "key": "l"}],
        pa.array([[{"key": "k", "value": [1]}, {"key": "l", "value": []}]]),
        [{"key": "k", "value": [1]}, {"key": "l", "value": []}],
    ),
    (
        "pairs",
        [{"key": 0.5, "value": None}, (1.5, True), [2.5, False]],
        pa.array([[(0.5, None), (1.5, True), (2.5, False)]], pa.map_(pa.float64(), pa.bool_())),
        [
            {"key": 0.5, "value": None},
            {"key": 1.5, "value": True},
            {"key": 2.5, "value": False},
        ],
    ),
    ("pair", (-1, ["a"]), pa.array([{"x": -1, "y": ["a"]}]), {"x": -1, "y": ["a"]}),
    ("pair", {"y": ["b"]}, pa.array([{"y": ["b"]}]), {"x": 0, "y": ["b"]}),
    ("point", (1.0, 2.0), pa.array([{"x": 1.0, "y": 2.0}]), {"x": 1.0, "y": 2.0}),
    ("none", {"x": 3}, pa.array([{"x": 3}]), {"given": 1, "tuple": {"x": 3}}),
    ("none", None, pa.array([None]), {"given": 0, "tuple": {"x": 0}}),
    ("big", 10**70, pa.array([str(10**70)]), str(10**70)),
    ("big", -5, pa.array([-5]), "-5"),
    ("money", Decimal("1E-8"), pa.array([Decimal("1E-8")]), "0.00000001"),
    ("money", Decimal("-12.5"), pa.array([Decimal("-12.5"), None])[:1], "-12.5"),
    ("money", 7, pa.array([7]), "7"),
    ("ip", ipaddress.IPv4Address("1.2.3.4"), pa.array(["1.2.3.4"]), "1.2.3.4"),
    ("time", 1_500, pa.array([dt.time(0, 0, 1, 500_000)]), 1_500),
    ("time", dt.timedelta(hours=-30), pa.array([dt.timedelta(hours=-30)]), -108_000_000),
    ("json", '{"a": 1}', pa.array(['{"a": 1}']), '{"a": 1}'),
]


def block_value(row: bytes, name: str) -> Any:
    decoded = decode(binary([row_batch([row])]), CODEC, "batch")
    assert decoded.bad == []
    value = decoded.batch.column(name)[0].as_py()
    # Protobuf's maps have no order.
    return sorted(value, key=lambda entry: entry["key"]) if name == "map" else value


@pytest.mark.parametrize(("name", "value", "array", "block"), CASES)
def test_python_and_arrow_say_the_same(name: str, value: Any, array: Any, block: Any) -> None:
    """A value written from Python, and from a file's column, is what the block then holds."""
    row = RowEncoder(CODEC).encode({name: value})
    assert block_value(row, name) == block
    wire = row_columns(CODEC, pa.record_batch({name: array}), BatchOrigin("f", 1))
    assert block_value(CODEC.encode_rows(wire)[0].as_py(), name) == block


@pytest.mark.parametrize(
    ("value", "which"),
    [({"as_string": "x"}, 2), ({"as_uint64": 7}, 3), ({"as_array_string": []}, 1), ({}, 0)],
)
def test_variants(value: dict[str, Any], which: int) -> None:
    """The alternative is the one that was named, also where it is empty."""
    row = RowEncoder(CODEC).encode({"any": value})
    assert block_value(row, "any")["which"] == which
    names = ["as_array_string", "as_string", "as_uint64"]
    kind = pa.struct(zip(names, [pa.list_(pa.string()), pa.string(), pa.int64()], strict=True))
    batch = pa.record_batch({"any": pa.array([value], kind)})
    wire = row_columns(CODEC, batch, BatchOrigin("f", 1))
    assert block_value(CODEC.encode_rows(wire)[0].as_py(), "any")["which"] == which


NULLS: dict[str, tuple[str, Any, pa.DataType]] = {
    "a map's value": ("Map(String, Int64)", {"a": None}, pa.map_(pa.string(), pa.int64())),
    "a text in a map": ("Map(String, String)", {"a": None}, pa.map_(pa.string(), pa.string())),
    "a map's list": (
        "Map(String, Array(Int64))",
        {"a": None},
        pa.map_(pa.string(), pa.list_(pa.int64())),
    ),
    "a map's key": (
        "Map(String, Int64)",
        [{"key": None, "value": 1}],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.int64())])),
    ),
    "a key that is no map's in protobuf": (
        "Map(Float64, Int64)",
        [{"key": None, "value": 1}],
        pa.list_(pa.struct([("key", pa.float64()), ("value", pa.int64())])),
    ),
    "a map in an array": (
        "Array(Map(String, Int64))",
        [{"a": None}],
        pa.list_(pa.map_(pa.string(), pa.int64())),
    ),
    "in the place of a map": (
        "Array(Map(String, Int64))",
        [None],
        pa.list_(pa.map_(pa.string(), pa.int64())),
    ),
    "in the place of an array": ("Array(Array(Int64))", [None], pa.list_(pa.list_(pa.int64()))),
    "a tuple in an array": (
        "Array(Tuple(a Int64, b String))",
        [{"a": None, "b": "x"}],
        pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())])),
    ),
    "a nested": (
        "Nested(a Int64, b String)",
        [{"a": 1, "b": None}],
        pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())])),
    ),
    "a tuple": ("Tuple(a Int64)", {"a": None}, pa.struct([("a", pa.int64())])),
    "a list in a tuple": (
        "Tuple(a Array(Int64))",
        {"a": None},
        pa.struct([("a", pa.list_(pa.int64()))]),
    ),
    "a tuple in a variant": (
        "Variant(String, Tuple(a Int64))",
        {"as_tuple_a_int64": {"a": None}},
        pa.struct([("as_tuple_a_int64", pa.struct([("a", pa.int64())]))]),
    ),
}


def in_arrow(value: Any, type_: pa.DataType) -> pa.RecordBatch:
    """The second row of two; the first is a null, whose parts are no nulls of their own."""
    if pa.types.is_map(type_):
        value = list(value.items())
    elif pa.types.is_list(type_) and pa.types.is_map(type_.value_type):
        value = [one and list(one.items()) for one in value]
    if pa.types.is_list(type_) and pa.types.is_struct(type_.value_type):
        entries = pa.array(value, type_.value_type)
        array: Any = pa.ListArray.from_arrays([0, 0, len(entries)], entries)
    else:
        array = pa.array([None, value], type_)
    return pa.record_batch({"c": array})


@pytest.mark.parametrize("place", NULLS)
def test_a_null_is_refused_where_the_type_has_none(place: str) -> None:
    """It would become 0, '' or [], and nobody would see that."""
    text, value, type_ = NULLS[place]
    one = codec(ColumnDef("c", text))
    with pytest.raises(BadValue, match=r"f, row 2, column 'c': .*null"):
        row_columns(one, in_arrow(value, type_), BatchOrigin("f", 1))
    with pytest.raises(BadValue, match=r"column 'c'.*null"):
        RowEncoder(one).encode({"c": value})


@pytest.mark.parametrize(
    ("text", "value", "type_"),
    [
        ("Map(String, Nullable(Int64))", {"a": None}, pa.map_(pa.string(), pa.int64())),
        (
            "Array(Tuple(a Nullable(Int64)))",
            [{"a": None}],
            pa.list_(pa.struct([("a", pa.int64())])),
        ),
        (
            "Array(Variant(Int64, String))",
            [None],
            pa.list_(pa.struct([("as_int64", pa.int64())])),
        ),
        ("Array(Nullable(Tuple(a Int64)))", [None], pa.list_(pa.struct([("a", pa.int64())]))),
        ("Nullable(Tuple(a Int64))", None, pa.struct([("a", pa.int64())])),
        (
            "Tuple(a Nullable(Tuple(b Int64)))",
            {"a": None},
            pa.struct([("a", pa.struct([("b", pa.int64())]))]),
        ),
    ],
)
def test_a_null_is_taken_where_the_type_has_one(text: str, value: Any, type_: Any) -> None:
    """The control; nor is what stands in a null a null of its own."""
    one = codec(ColumnDef("c", text))
    wire = row_columns(one, in_arrow(value, type_), BatchOrigin("f", 1))
    rows = [*one.encode_rows(wire).to_pylist(), RowEncoder(one).encode({"c": value})]
    assert decode(binary([row_batch(rows)]), one, "batch").bad == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("list", [1, 256]),
        ("list", [None]),
        ("list", 5),
        ("maybe", [dt.date(2300, 1, 1)]),
        ("map", {"k": [40_000]}),
        ("map", 3),
        ("map", [1]),
        ("map", [[1]]),
        ("names", ["ab", "cd"]),
        ("map", [["k"]]),
        ("map", [{"key": "k"}]),
        ("map", [{"key": "k", "value": [1], "more": 1}]),
        ("map", [{"k": [1], "l": [2]}]),
        ("pair", {"z": 1}),
        ("pair", {"x": 128}),
        ("pair", (1, ["a"], 3)),
        ("pair", (1,)),
        ("pair", ()),
        ("pair", [1, ["a"]]),
        ("none", (1, 2)),
        ("point", (1.0, 2.0, 3.0)),
        ("point", (1.0,)),
        ("point", [1.0, 2.0, 3.0]),
        ("any", {"as_string": "x", "as_uint64": 1}),
        ("any", {"as_float": 1.0}),
        ("big", "x"),
        ("big", 2**255),
        ("money", Decimal("1E-9")),
        ("money", 0.5e-8),
        ("ip", "1.2.3"),
        ("json", "[1]"),
        ("json", {"a": 1}),
    ],
)
def test_what_does_not_fit_is_refused(name: str, value: Any) -> None:
    """A value that the column cannot hold is an error that names the column, from Python as from
    Arrow."""
    with pytest.raises(BadValue, match=f"column '{name}'"):
        RowEncoder(CODEC).encode({name: value})
    try:
        array = pa.array([value])
    except (OverflowError, pa.ArrowInvalid):  # no array holds it: it cannot come from Arrow
        return
    if isinstance(value, dict) and name == "map":
        array = pa.array([list(value.items())], pa.map_(pa.string(), pa.list_(pa.int64())))
    with pytest.raises(BadValue, match=rf"f, row 1, column '{name}'"):
        row_columns(CODEC, pa.record_batch({name: array}), BatchOrigin("f", 1))


MAPS = '{"m": [{"key": "a", "value": "b"}]}\n{"m": [{"value": "d", "key": "c"}]}\n'


@pytest.mark.parametrize("neighbour", ["", '{"p": 9.5}\n', '{"n": [1, null]}\n'])
def test_a_map_in_json_is_the_same_beside_every_neighbour(tmp_path: Path, neighbour: str) -> None:
    """One that Arrow's reader refuses has the whole block read row by row."""
    columns = {"m": "Map(String, String)", "n": "Array(Nullable(Int64))", "p": "Decimal(9, 2)"}
    encoder = RowEncoder(codec(*(ColumnDef(name, type_) for name, type_ in columns.items())))
    path = tmp_path / "f.jsonl"
    path.write_text(MAPS + neighbour)
    pieces = RowFile.of(path, None, FileOptions(allow_missing=True)).rows(encoder)
    rows = [row for p in pieces for row in decode_rows(encoder.codec, p.rows).to_pylist()]
    entries = [{"key": "a", "value": "b"}, {"key": "c", "value": "d"}]
    assert [row["m"] for row in rows[:2]] == [[entry] for entry in entries]
