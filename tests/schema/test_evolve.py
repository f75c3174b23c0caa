"""Field numbers over the life of a table."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.records_pb2 import TableSchema
from relay.schema.evolution import (
    ColumnDef,
    evolve,
    live_columns,
    proto_text,
    unsupported_columns,
)
from relay.schema.types.proto_shape import field_names
from tests.schema.rows import TABLE, codec_of


def evolved(current: TableSchema | None, *columns: ColumnDef, uuid: str = "u") -> TableSchema:
    after = evolve(current, TABLE, uuid, columns)
    assert after is not None
    return after


def numbers(schema: TableSchema) -> dict[str, int]:
    return {column.name: column.number for column in live_columns(schema)}


A, B, C = ColumnDef("a", "Int64"), ColumnDef("b", "String"), ColumnDef("c", "Date")


def test_a_tables_life() -> None:
    """New columns take the next number, a dropped one's stays reserved, a type that reads
    otherwise takes a new number, and a column that comes back the one that it had."""
    first = evolved(None, A, B)
    assert (first.version, first.based_on, numbers(first)) == (1, 0, {"a": 1, "b": 2})
    added = evolved(first, A, C, B)
    assert (added.version, added.based_on, numbers(added)) == (2, 1, {"a": 1, "b": 2, "c": 3})
    dropped = evolved(added, A, C)
    assert numbers(dropped) == {"a": 1, "c": 3}
    changed = evolved(dropped, A._replace(type="String"), C)
    assert numbers(changed) == {"a": 4, "c": 3}
    back = evolved(changed, A._replace(type="String"), B, C)
    assert numbers(back) == {"a": 4, "b": 2, "c": 3}
    assert "reserved 1;" in proto_text(back)


@pytest.mark.parametrize(
    ("altered", "number"),
    [
        ([A, B, C], 3),
        ([A, C], 3),
        ([A, B._replace(type="Array(String)")], 3),
    ],
    ids=["a column added", "one dropped, another added", "a type changed"],
)
def test_replicas_that_disagree_for_a_while_use_no_number_up(
    altered: list[ColumnDef], number: int
) -> None:
    """One relay asks a replica that has made an ALTER, another one that has not yet, in turns:
    producers that took the row message meanwhile, or had it before, are right at the end."""
    before = evolved(None, A, B)
    after = first = evolved(before, *altered)
    for _ in range(5):
        lagging = evolved(after, A, B)
        assert numbers(lagging) == numbers(before)
        after = evolved(lagging, *altered)
        assert numbers(after) == numbers(first)
    assert max(column.number for column in after.columns) == number


@pytest.mark.parametrize(
    ("types", "taken"),
    [
        (["UInt32", "", "UInt64"], [2, 2]),
        (["UInt64", "", "UInt32"], [2, 3]),
        (["UInt32", "String", "UInt32", "String"], [2, 3, 2, 3]),
        (["UInt64", "UInt32", "", "UInt64"], [2, 3, 3]),
        (["String", "", "Date", "", "String"], [2, 3, 2]),
    ],
)
def test_a_column_that_comes_back_takes_its_number_where_values_read_alike(
    types: list[str], taken: list[int]
) -> None:
    """The last one that it had, as if it had never been away."""
    current = evolved(None, A)
    found = []
    for type_ in types:
        current = evolved(current, A, *([ColumnDef("b", type_)] if type_ else []))
        found += [number for name, number in numbers(current).items() if name == "b"]
    assert found == taken


ALIKE = [
    ("UInt8", "UInt32"),
    ("Int32", "Int8"),
    ("Int8", "Nullable(Int64)"),
    ("UInt16", "UInt64"),
    ("UInt32", "Int64"),
    ("String", "LowCardinality(Nullable(String))"),
    ("String", "Enum8('up' = 1)"),
    ("Enum8('up' = 1)", "Enum16('up' = 1, 'down' = 2)"),
    ("Decimal(9, 2)", "Decimal(18, 4)"),
    ("Date", "Date32"),
    ("DateTime", "DateTime('Europe/Berlin')"),
    ("DateTime64(3)", "DateTime64(3, 'UTC')"),
    ("UInt64", "SimpleAggregateFunction(sum, UInt64)"),
    ("Array(Nothing)", "Array(Nothing)"),
]
UNLIKE = [
    ("UInt64", "UInt32"),
    ("Int8", "UInt64"),
    ("Int8", "UInt8"),
    ("String", "UInt64"),
    ("String", "FixedString(4)"),
    ("Float32", "Float64"),
    ("Date", "Int32"),
    ("Date", "Time"),
    ("DateTime", "UInt32"),
    ("DateTime64(3)", "DateTime64(6)"),
    ("DateTime64(3)", "Time64(3)"),
    ("Int64", "DateTime64(0)"),
    ("String", "Array(String)"),
    ("Array(UInt8)", "Array(UInt16)"),
    ("Tuple(a Int8)", "Tuple(b Int8)"),
    ("Int8", "QBit(Int8, 3)"),
]


@pytest.mark.parametrize(("before", "after"), [*ALIKE, *UNLIKE])
def test_a_changed_type_keeps_its_number_where_values_read_alike(before: str, after: str) -> None:
    """Producers need not notice a type that is the same in protobuf, in the same unit; where the
    same bytes would mean another value, the old number is never read again."""
    first = evolved(None, A, ColumnDef("b", before))
    second = evolve(first, TABLE, "u", [A, ColumnDef("b", after)]) or first
    kept = (before, after) in ALIKE
    assert numbers(second)["b"] == (2 if kept else 3)
    assert [column.type for column in live_columns(second)] == ["Int64", after]
    assert [column.number for column in second.columns if column.dropped] == ([] if kept else [2])


def test_nothing_changed_is_none() -> None:
    """The same columns, in whatever order, are no new version."""
    first = evolved(None, A, B)
    assert evolve(first, TABLE, "u", [B, A]) is None


def test_a_table_made_anew_keeps_its_numbers() -> None:
    """Another uuid is a new version with the numbers of the columns that are the same."""
    first = evolved(None, A, B)
    again = evolved(first, A, C, uuid="v")
    assert (again.uuid, numbers(again)) == ("v", {"a": 1, "c": 3})


def test_computed_columns_carry_nothing() -> None:
    """MATERIALIZED and ALIAS columns are not in the row message, whatever their types; a change
    of kind keeps the number."""
    computed = ColumnDef("m", "Array(Nothing)", "MATERIALIZED")
    first = evolved(None, A, computed, ColumnDef("x", "Int8", "ALIAS"))
    assert numbers(first) == {"a": 1}
    assert unsupported_columns(first) == []
    plain = evolved(first, A, computed, ColumnDef("x", "Int8", "DEFAULT"))
    assert numbers(plain) == {"a": 1, "x": 3}


def test_the_block_column_is_not_the_producers() -> None:
    """The column that the loader fills has no field, under its default or another name."""
    block = ColumnDef("_block", "String")
    assert numbers(evolved(None, A, block)) == {"a": 1}
    other = evolve(None, TABLE, "u", [A, block, B], block_column="b")
    assert other is not None
    assert numbers(other) == {"a": 1, "_block": 2}


def test_problems_are_named() -> None:
    """Unsupported columns are listed by name; so is a table with nothing to fill."""
    schema = evolved(None, A, ColumnDef("t", "Array(Nothing)"), ColumnDef("u", "QBit(Int8, 3)"))
    assert [problem.split(":")[0] for problem in unsupported_columns(schema)] == [
        "column t of shop.orders",
        "column u of shop.orders",
    ]
    nothing = evolved(None, ColumnDef("m", "Int8", "MATERIALIZED"))
    assert "no column" in unsupported_columns(nothing)[0]


def test_protobufs_own_numbers_are_left_out() -> None:
    """Numbers 19000 to 19999 belong to protobuf and are passed over."""
    before = TableSchema(table=TABLE, version=1, uuid="u")
    before.columns.add(name="a", type="Int64", number=18_999)
    assert numbers(evolved(before, A, B, C)) == {"a": 18_999, "b": 20_000, "c": 20_001}


COLUMNS = st.lists(
    st.builds(
        ColumnDef,
        st.sampled_from("abcdef"),
        st.sampled_from(["Int64", "String", "Date"]),
        st.sampled_from(["", "DEFAULT", "MATERIALIZED"]),
    ),
    unique_by=lambda column: column.name,
    max_size=6,
)


@given(st.lists(COLUMNS, max_size=12))
def test_a_number_never_changes_its_meaning(history: list[list[ColumnDef]]) -> None:
    """Over any history a number means one column of one type, and the live columns are the
    table's."""
    current: TableSchema | None = None
    meaning: dict[int, tuple[str, str]] = {}
    for columns in history:
        after = evolve(current, TABLE, "u", columns)
        if after is None:
            continue
        assert after.based_on == (current.version if current else 0)
        for column in after.columns:
            assert meaning.setdefault(column.number, (column.name, column.type)) == (
                column.name,
                column.type,
            )
        alive = {(c.name, c.type, c.default_kind) for c in after.columns if not c.dropped}
        assert alive == set(columns)
        assert evolve(after, TABLE, "u", columns) is None
        current = after


NAMES = st.lists(
    st.one_of(
        st.sampled_from(["a_b", "aB", "a b", "a.b", "ab", "_", "1", "ü"]), st.text(max_size=5)
    ),
    unique=True,
    min_size=1,
    max_size=12,
)


@given(NAMES)
def test_field_names_are_valid_and_unique(names: list[str]) -> None:
    """Whatever the columns are called, fields have valid names that protoc tells apart, also as
    JSON and camel case."""
    schema = evolved(None, *(ColumnDef(name, "String") for name in names))
    fields = list(field_names((one.number, one.name) for one in schema.columns).values())
    assert all(re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", field) for field in fields)
    assert len({field.replace("_", "").lower() for field in fields}) == len(names)
    codec_of(dict.fromkeys(names, "String"))


def test_valid_names_stay() -> None:
    """A column whose name protobuf allows keeps it, also beside one that would take it."""
    schema = evolved(None, ColumnDef("a b", "String"), ColumnDef("a_b", "String"))
    assert field_names((one.number, one.name) for one in schema.columns) == {1: "a_b_n1", 2: "a_b"}


@pytest.mark.parametrize("word", ["message", "reserved", "optional", "class", "rows", "import"])
def test_proto_text(word: str) -> None:
    """The .proto names table, version, types and units, and keywords are fine as names."""
    schema = evolved(
        None,
        ColumnDef(word, "Nullable(Int8)"),
        ColumnDef("größe", "DateTime64(3)"),
        ColumnDef("e", "Enum8('new\nline' = 1)"),
    )
    text = proto_text(schema)
    assert "package shop.orders;" in text
    assert "// Rows of shop.orders, schema version 1." in text
    assert f"  optional int32 {word} = 1;  // Nullable(Int8); -128 to 127" in text
    assert "  optional int64 gr__e = 2;  // column 'größe': DateTime64(3); 10^-3 s since" in text
    assert all(
        line.startswith(("//", " ", "}")) or ";" in line or "{" in line or not line
        for line in text.splitlines()
    )
