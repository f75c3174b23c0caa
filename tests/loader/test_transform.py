"""Transforms: loaded, versions told apart, refused where not deterministic; no servers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from loader.blocks import transform
from loader.blocks.fit_columns import fitted
from loader.blocks.transform import CannotTransform, Transform, Transforms
from loader.clickhouse.client import TableRefused
from relay.errors import ConfigError, Refused
from tests.loader.blocks import batch
from tests.produce.test_nested import NULLS, in_arrow

Write = Callable[[str], str]
NUMBERS = count()
ROWS = batch(0, 4)
COLUMNS = {"id": "Int64", "name": "LowCardinality(String)", "day": "Date", "price": "Decimal(9, 2)"}


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module of the operator's, gives `module:f`; forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module = f"transform_of_test_{next(NUMBERS)}"

    def write(text: str) -> str:
        sys.modules.pop(module, None)
        (tmp_path / f"{module}.py").write_text(text)
        return f"{module}:f"

    yield write
    sys.modules.pop(module, None)


def test_the_version_follows_the_source(written: Write) -> None:
    """Another text, or another __version__: another version; the same: the same."""
    first = transform.load(written("f = print"))
    assert first.version.startswith(f"{first.name}@")
    assert transform.load(written("f = print")).version == first.version
    assert transform.load(written("f = print  # changed")).version != first.version
    said = transform.load(written("__version__ = '7'\nf = print"))
    assert "@7+" in said.version


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import not_there_at_all", "cannot import"),
        ("1 / 0", "ZeroDivisionError"),
        ("g = print", "no function f"),
        ("f = 3", "no function f"),
    ],
)
def test_a_module_that_is_of_no_use_is_refused(written: Write, text: str, why: str) -> None:
    """With the module's name, and where to install it."""
    name = written(text)
    with pytest.raises(Refused, match=why):
        Transforms(name, {}).of("d.t")
    with pytest.raises(ConfigError, match=why) as refused:
        Transforms("", {"d.t": name}).check()
    assert "executors" in refused.value.next_step


def test_a_module_without_source_is_refused() -> None:
    """Its versions could not be told apart."""
    with pytest.raises(Refused, match="no Python source"):
        transform.load("_struct:calcsize")


def test_a_tables_own_setting_wins(written: Write) -> None:
    """Also where it is empty: then its rows go through as they are."""
    name = written("f = g = print")
    found = Transforms(name, {"d.plain": "", "d.other": name.replace(":f", ":g")})
    for table, wanted in (("d.any", ":f"), ("d.other", ":g")):
        one = found.of(table)
        assert one is not None
        assert one.name.endswith(wanted)
    assert found.of("d.plain") is None
    assert Transforms("", {}).of("d.any") is None


def given(function: transform.Function) -> Transform:
    return Transform("m:f", "m:f@1", function)


def test_it_gets_the_table_and_may_give_a_table() -> None:
    """The table's name stands in the schema's metadata; pieces and no rows at all are joined."""
    seen: list[object] = []

    def f(rows: pa.RecordBatch) -> pa.Table:
        seen.append(rows.schema.metadata)
        return pa.Table.from_batches([rows.slice(0, 1), rows.slice(2, 2)])

    made = given(f).once("d.t", ROWS)
    assert made.column(0).to_pylist() == [0, 2, 3]
    assert seen == [{b"table": b"d.t"}]
    empty = given(lambda rows: pa.Table.from_batches([], rows.schema)).once("d.t", ROWS)
    assert (empty.num_rows, empty.schema.names) == (0, ["id", "name"])


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda _: {}["x"], "m:f@1: KeyError: 'x'"),
        (lambda _: [1], "returned list, not a RecordBatch"),
    ],
)
def test_what_it_raises_is_the_reason(function: transform.Function, why: str) -> None:
    """So is a result of another kind."""
    with pytest.raises(CannotTransform, match=why):
        given(function).once("d.t", ROWS)


def test_one_that_is_not_deterministic_is_refused() -> None:
    """Values, columns or rows that differ between two runs; each table's first rows tell."""
    numbers = count()

    def values(rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.set_column(0, "id", pa.array([next(numbers)] * rows.num_rows))

    def renamed(rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.rename_columns([f"c{next(numbers)}", "name"])

    def fewer(rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.slice(next(numbers) % 2)

    for function, what in ((values, "column id"), (renamed, "columns"), (fewer, "number of rows")):
        with pytest.raises(TableRefused, match=f"not deterministic.*{what}"):
            Transforms("", {}).made(given(function), "d.t", ROWS)


def test_a_nan_is_no_difference_and_only_the_first_rows_go_through_twice() -> None:
    """Each table's first rows in this process."""
    calls: list[int] = []

    def f(rows: pa.RecordBatch) -> pa.RecordBatch:
        calls.append(rows.num_rows)
        column = pa.array([[float("nan")]] * rows.num_rows)
        return rows.append_column("x", column)

    found = Transforms("", {})
    for table in ("d.t", "d.t", "d.u"):
        found.made(given(f), table, ROWS)
    assert calls == [4, 4, 4, 4, 4]


def test_columns_keep_their_meaning_or_take_the_tables() -> None:
    """The block's own types stay; new columns are in the form that blocks have."""
    made = ROWS.append_column("day", pa.array([1, 2, 3, None], pa.int32()))
    made = made.append_column("price", pa.array(["1.25", "2", None, "-3.5"]))
    found = fitted(made.replace_schema_metadata(None), ROWS, COLUMNS, "_block")
    kinds = [(field.metadata or {})[b"clickhouse"].decode() for field in found.schema]
    assert kinds == ["Int64", "LowCardinality(String)", "Date", "Decimal(9, 2)"]
    assert found.schema.field("day").type == pa.uint16()
    assert found.select(["id", "name"]).equals(ROWS)
    assert found.column("day").to_pylist() == [1, 2, 3, None]


@pytest.mark.parametrize(
    ("name", "values", "why"),
    [
        ("day", pa.array([0, 0, 0, -1]), "column day as int64, but Date needs uint16.*-1"),
        ("day", pa.array(["x"] * 4), "column day as string, but Date needs uint16"),
        ("price", pa.array(["1", "1", "1.255", "1"]), "row 3, column price: '1.255' does not fit"),
        ("note", pa.array([1] * 4), "column note, which the table does not have"),
        ("_block", pa.array(["b"] * 4), "which only the loader fills"),
        ("id", pa.array([1] * 4), "column id twice"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, values: pa.Array, why: str) -> None:
    """With column, value and type; nothing is wrapped, cut or replaced."""
    with pytest.raises(CannotTransform, match=why):
        fitted(ROWS.append_column(name, values), ROWS, {**COLUMNS, "_block": "String"}, "_block")


def test_a_changed_value_of_the_blocks_own_column_is_checked() -> None:
    """A text that the column's type does not hold, in a column that keeps its type."""
    schema = pa.schema([pa.field("e", pa.string(), metadata={b"clickhouse": b"Enum8('a' = 1)"})])
    block = pa.RecordBatch.from_pylist([{"e": "a"}], schema)
    assert fitted(block, block, {}, "_block").equals(block)
    made = pa.RecordBatch.from_pylist([{"e": "b"}], schema)
    with pytest.raises(CannotTransform, match="row 1, column e: 'b' does not fit Enum8"):
        fitted(made, block, {}, "_block")


MIDNIGHT = 1_704_067_200
TIMES = [
    ("DateTime", pa.timestamp("s"), MIDNIGHT, MIDNIGHT),
    ("DateTime64(3)", pa.timestamp("s"), MIDNIGHT, MIDNIGHT * 1000),
    ("Nullable(DateTime64(6, 'UTC'))", pa.timestamp("ms", "UTC"), MIDNIGHT, MIDNIGHT * 1000),
    ("DateTime64(4)", pa.timestamp("us"), 1_200_000, 12_000),
    ("DateTime64(9)", pa.timestamp("us"), 7, 7_000),
    ("DateTime64(7)", pa.timestamp("us"), 10_098_259_200 * 10**6, 10_098_259_200 * 10**7),
    ("DateTime64(8)", pa.timestamp("ns"), 70, 7),
    ("Time64(6)", pa.time64("ns"), 7_000, 7),
    ("Time", pa.duration("ms"), 3_600_000, 3_600),
    ("Date", pa.timestamp("s"), MIDNIGHT, MIDNIGHT // 86_400),
    ("Date32", pa.timestamp("s"), MIDNIGHT, date(2024, 1, 1)),
    ("Date32", pa.int32(), 1, date(1970, 1, 2)),
]


@pytest.mark.parametrize(("type_", "arrow", "given_", "meant"), TIMES)
def test_times_are_counted_in_the_columns_unit(
    type_: str, arrow: pa.DataType, given_: int, meant: object
) -> None:
    """Arrow's cast to a number keeps the number: 2024 became a day of January 1970."""
    made = ROWS.append_column("at", pa.array([given_, None] * 2, arrow))
    found = fitted(made, ROWS, {**COLUMNS, "at": type_}, "_block").column("at")
    assert found.to_pylist() == [meant, None] * 2


@pytest.mark.parametrize(
    ("type_", "values", "why"),
    [
        ("DateTime", pa.array([1_001], pa.timestamp("ms")), "would lose data"),
        ("DateTime64(4)", pa.array([1], pa.timestamp("us")), "more digits than the type holds"),
        ("DateTime64(7)", pa.array([2**62], pa.timestamp("us")), "overflow"),
        ("DateTime64(7)", pa.array([1], pa.timestamp("ns")), "more digits than the type holds"),
        ("Date", pa.array([MIDNIGHT + 1], pa.timestamp("s")), "a time of day"),
        ("Int64", pa.array([1], pa.timestamp("s")), "lose their unit"),
        ("Array(DateTime64(3))", pa.array([[1]], pa.list_(pa.timestamp("s"))), "lose their unit"),
        ("Array(DateTime64(3))", pa.array([[2**62]]), f"{2**62} does not fit DateTime64"),
        ("Array(Array(Decimal(9, 2)))", pa.array([[["1.5"], ["1.999"]]]), "'1.999' does not fit"),
        (
            "Tuple(a Nullable(Decimal(9, 2)), b String)",
            pa.array([{"a": "1.999", "b": ""}]),
            "'1.999' does not fit",
        ),
    ],
)
def test_times_and_parts_that_do_not_fit_are_refused(
    type_: str, values: pa.Array, why: str
) -> None:
    """What ClickHouse's own cast would cut or read in another unit."""
    row = ROWS.slice(0, 1)
    with pytest.raises(CannotTransform, match=why):
        fitted(row.append_column("at", values), row, {**COLUMNS, "at": type_}, "_block")


LOST = [
    ("Float32", pa.array([6e38]), "would be infinite"),
    ("Float32", pa.array(["6e38"]), "would be infinite"),
    ("Float64", pa.array(["1e400"]), "would be infinite"),
    ("Array(Float32)", pa.array([[1.0, -6e38]]), "would be infinite"),
    ("Tuple(a Float32)", pa.array([{"a": 6e38}]), "would be infinite"),
    (
        "Map(String, Float32)",
        pa.array([[("k", 6e38)]], pa.map_(pa.string(), pa.float64())),
        "would be infinite",
    ),
    ("Bool", pa.array([2], pa.int8()), "neither 0 nor 1"),
    ("Bool", pa.array([0.5]), "."),
    ("Array(Bool)", pa.array([[0, 2]]), "neither 0 nor 1"),
]


@pytest.mark.parametrize(("type_", "values", "why"), LOST)
def test_a_number_that_would_be_another_is_refused(type_: str, values: pa.Array, why: str) -> None:
    """Arrow's own cast makes infinity of 6e38 and true of 2, and calls that safe."""
    row = ROWS.slice(0, 1)
    with pytest.raises(CannotTransform, match=why):
        fitted(row.append_column("v", values), row, {**COLUMNS, "v": type_}, "_block")


@pytest.mark.parametrize(
    ("type_", "values", "meant"),
    [
        ("Float32", pa.array([0.1]), pa.scalar(0.1, pa.float32()).as_py()),
        ("Float32", pa.array([float("inf")]), float("inf")),
        ("Float32", pa.array(["-inf"]), float("-inf")),
        ("Bool", pa.array([1.0]), True),
        ("Array(Bool)", pa.array([[]], pa.list_(pa.int8())), []),
        (
            "Array(Nullable(Bool))",
            pa.array([[0, 1, None]], pa.large_list(pa.int8())),
            [0, 1, None],
        ),
        ("Array(Float32)", pa.array([[1.0, 2.0]], pa.list_(pa.float64(), 2)), [1.0, 2.0]),
        (
            "Map(String, Array(Bool))",
            pa.array([[("k", [1])]], pa.map_(pa.string(), pa.list_(pa.int8()))),
            [{"key": "k", "value": [True]}],
        ),
    ],
)
def test_a_number_that_stays_what_it_is_goes_in(
    type_: str, values: pa.Array, meant: object
) -> None:
    """The control: rounded as floats are, infinite as it was meant, in whatever list."""
    rows = pa.concat_arrays([values, pa.nulls(1, values.type), values])[1:]
    made = ROWS.slice(0, 2).append_column("v", rows)
    found = fitted(made, ROWS.slice(0, 2), {**COLUMNS, "v": type_}, "_block")
    assert found.column("v").to_pylist() == [None, meant]


@pytest.mark.parametrize("type_", ["Decimal(18, 8)", "String"])
def test_a_small_decimal_is_written_without_an_exponent(type_: str) -> None:
    """As Arrow writes it, 0E-8, no Decimal takes it."""
    prices = pa.array([Decimal("0E-8"), Decimal("-1E-8"), None], pa.decimal128(18, 8))
    texts = ["0.00000000", "-0.00000001", None]
    rows = ROWS.slice(0, 3)
    made = rows.append_column("one", prices)
    made = made.append_column("list", pa.array([prices[:2].to_pylist()] * 3, pa.list_(prices.type)))
    types = {"one": type_, "list": f"Array({type_})"}
    found = fitted(made, rows, {**COLUMNS, **types}, "_block")
    assert found.column("one").to_pylist() == texts
    assert found.column("list").to_pylist() == [texts[:2]] * 3


TIME = pa.array([MIDNIGHT], pa.timestamp("s"))
PARTS = [
    ("Nullable(Tuple(a Int64))", [{"a": 7}], "parts a, and needs given, tuple"),
    ("Variant(Int64, String)", [{"as_int64": 7}], "parts as_int64, and needs which, as_int64"),
    ("Dynamic", [{"a": 7}], "parts a, and needs which, as_bool"),
    ("Tuple(a Int64, b String)", [{"a": 7, "b": "x", "note": "y"}], "a, b, note, and needs a, b"),
    ("Tuple(a Int64, b String)", [{"a": 7}], "parts a, and needs a, b"),
    ("Array(Tuple(a Int64, b String))", [[{"a": 7}]], "parts a, and needs a, b"),
    ("Map(String, Tuple(a Int64))", [[{"key": "k", "value": {"b": 7}}]], "b, and needs a"),
    ("Tuple(a Tuple(b Int64))", [{"a": {"c": 7}}], "parts c, and needs b"),
    (
        "Tuple(s String, t DateTime64(6))",
        pa.StructArray.from_arrays([TIME, pa.array(["x"])], ["t", "s"]),
        "lose their unit",
    ),
    (
        "Tuple(a Int64, t DateTime64(3))",
        pa.StructArray.from_arrays([TIME], ["t"]),
        "lose their unit",
    ),
    (
        "Array(DateTime64(3))",
        pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), TIME.dictionary_encode()),
        "lose their unit",
    ),
    ("Variant(Int64, String)", [{"which": 3, "as_int64": 7, "as_string": ""}], "which of .* is 3"),
    ("Nullable(Tuple(a Int64))", [{"given": None, "tuple": {"a": 7}}], "given of .* is None"),
    (
        "Variant(Decimal(9, 2), String)",
        [{"which": 1, "as_decimal_9_2": "1.999", "as_string": ""}],
        "'1.999' does not fit",
    ),
]


@pytest.mark.parametrize(("type_", "values", "why"), PARTS)
def test_structs_of_other_parts_are_refused(type_: str, values: object, why: str) -> None:
    """Arrow's cast fills what is missing with nulls, and drops what is too much."""
    given_ = values if isinstance(values, pa.Array) else pa.array(values)
    row = ROWS.slice(0, 1)
    with pytest.raises(CannotTransform, match=why):
        fitted(row.append_column("v", given_), row, {**COLUMNS, "v": type_}, "_block")


def test_the_order_of_parts_does_not_matter_and_a_null_may_stand_for_null() -> None:
    """Arrow casts them by name; a value in another encoding is the value."""
    row = ROWS.slice(0, 1).append_column("t", pa.array([{"b": "x", "a": 7}]))
    absent = pa.struct({"given": pa.uint8(), "tuple": pa.struct({"a": pa.int32()})})
    row = row.append_column("n", pa.array([None], absent))
    row = row.append_column("at", TIME.dictionary_encode())
    types = {
        "t": "Tuple(a Int64, b String)",
        "n": "Nullable(Tuple(a Int64))",
        "at": "DateTime64(3)",
    }
    found = fitted(row, ROWS.slice(0, 1), {**COLUMNS, **types}, "_block")
    assert found.select(["t", "n", "at"]).to_pylist() == [
        {"t": {"a": 7, "b": "x"}, "n": None, "at": MIDNIGHT * 1000}
    ]


def test_parts_that_fit_and_texts_of_times_go_in() -> None:
    row = ROWS.slice(0, 1).append_column("a", pa.array([["1.99", "2"]]))
    row = row.append_column("m", pa.array([[("k", 7)]], pa.map_(pa.string(), pa.int64())))
    row = row.append_column("text", pa.array([MIDNIGHT], pa.timestamp("s")))
    types = {"a": "Array(Decimal(9, 2))", "m": "Map(String, DateTime64(3))", "text": "String"}
    found = fitted(row, ROWS.slice(0, 1), {**COLUMNS, **types}, "_block")
    assert found.column("text").to_pylist() == ["2024-01-01 00:00:00"]
    assert found.column("a").to_pylist() == [["1.99", "2"]]


def nested_null(text: str, value: object, type_: pa.DataType) -> None:
    """Fits rows of which the second has the value."""
    rows = ROWS.slice(0, 2)
    made = rows.append_column("c", in_arrow(value, type_).column("c"))
    fitted(made, rows, {**COLUMNS, "c": text}, "_block")


A_INT64 = pa.struct({"a": pa.int64()})
TEXTS = pa.struct({"a": pa.list_(pa.string())})
CHOICE = pa.struct({"which": pa.uint8(), "as_int64": pa.int64(), "as_tuple_a_int64": A_INT64})
GIVEN = pa.struct({"given": pa.uint8(), "tuple": A_INT64})
CHOICES = [
    ("Variant(Int64, Tuple(a Int64))", {"which": 1}, CHOICE),
    ("Variant(Int64, Tuple(a Int64))", {"which": 2}, CHOICE),
    ("Variant(Int64, Tuple(a Int64))", {"which": 2, "as_tuple_a_int64": {"a": None}}, CHOICE),
    ("Nullable(Tuple(a Int64))", {"given": 1}, GIVEN),
    ("Nullable(Tuple(a Int64))", {"given": 1, "tuple": {"a": None}}, GIVEN),
    ("Array(Decimal(9, 2))", ["1.99", None], pa.list_(pa.string())),
]


@pytest.mark.parametrize(
    ("text", "value", "type_"),
    [*(one for place, one in NULLS.items() if "variant" not in place), *CHOICES],
)
def test_a_null_is_refused_where_the_type_has_none(
    text: str, value: object, type_: pa.DataType
) -> None:
    """ClickHouse would make 0, '' or [] of it, as input_format_null_as_default says."""
    with pytest.raises(CannotTransform, match="column c: a null in "):
        nested_null(text, value, type_)


@pytest.mark.parametrize(
    ("text", "value", "type_"),
    [
        ("Map(String, Nullable(Int64))", {"a": None}, pa.map_(pa.string(), pa.int64())),
        ("Array(Tuple(a Nullable(Int64)))", [{"a": None}], pa.list_(A_INT64)),
        ("Array(Variant(Int64, Tuple(a Int64)))", [None], pa.list_(CHOICE)),
        ("Array(Variant(Int64, Tuple(a Int64)))", [{"which": 0}], pa.list_(CHOICE)),
        ("Array(Nullable(Tuple(a Int64)))", [None, {"given": 0}], pa.list_(GIVEN)),
        ("Tuple(a Tuple(a Int64))", None, pa.struct({"a": A_INT64})),
        ("Tuple(a Array(LowCardinality(Nullable(String))))", {"a": [None]}, TEXTS),
    ],
)
def test_a_null_is_taken_where_the_type_has_one(
    text: str, value: object, type_: pa.DataType
) -> None:
    """The control; nor is what stands in a null a null of its own."""
    nested_null(text, value, type_)
