"""Field numbers that are in use already, given to an app that has none."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from relay.errors import ConfigError
from relay.records_pb2 import TableSchema
from relay.rows.row_codec import RowCodec
from relay.schema.evolution import ColumnDef, evolve, proto_text
from relay.schema.protoc import commented_row
from relay.schema.seed_matching import match_columns
from relay.schema.seeding import copied, lacking, left_out, numbered, of_files
from tests.schema.rows import versions_of

if TYPE_CHECKING:
    from pathlib import Path

TABLE = "d.t"
N, A, B = ColumnDef("n", "UInt64"), ColumnDef("a", "String"), ColumnDef("b", "String")


def after(*steps: list[ColumnDef]) -> list[TableSchema]:
    """Every version of a table that had these columns, one after the other."""
    versions: list[TableSchema] = []
    for columns in steps:
        found = evolve(versions[-1] if versions else None, TABLE, "u", columns)
        assert found is not None
        versions.append(found)
    return versions


def live(schema: TableSchema | None) -> dict[str, int]:
    assert schema is not None
    return {c.name: c.number for c in schema.columns if not c.dropped}


def seeded(path: Path, text: str, *columns: ColumnDef) -> TableSchema:
    file = path / "row.proto"
    file.write_text(text)

    def message_of(schema: TableSchema) -> Any:
        return RowCodec(schema).message_class.DESCRIPTOR

    row, comments = commented_row(file)
    return numbered(TABLE, "u", columns, row, message_of, comments)


def test_an_app_that_is_seeded_numbers_as_the_one_before_it() -> None:
    """And one that is not puts text into another text column."""
    old = after([N, A], [N, B, A])
    assert live(old[-1]) == {"n": 1, "a": 2, "b": 3}
    assert live(evolve(None, TABLE, "u", [N, B, A])) == {"n": 1, "b": 2, "a": 3}

    new = versions_of(lacking(copied(versions_of(old)), {}))

    assert evolve(new[TABLE][2], TABLE, "u", [N, B, A]) is None
    assert new == versions_of(old)


def test_what_was_interrupted_goes_on() -> None:
    """A table's versions one by one; what is there already is not written again."""
    old = after([N], [N, A], [N, B, A])

    assert lacking(old, versions_of(old[:1])) == old[1:]
    assert lacking(old, versions_of(old)) == []


@pytest.mark.parametrize(
    "there",
    [
        after([N, B, A]),
        after([N, A], [N, A, B], [N, B]),
        [TableSchema(table="d.other", version=1)],
    ],
    ids=["other numbers", "one version more", "another table"],
)
def test_an_app_that_has_numbers_of_its_own_is_left_alone(there: list[TableSchema]) -> None:
    with pytest.raises(ConfigError, match="stay for ever; nothing was written"):
        lacking(after([N, A], [N, A, B]), versions_of(there))


def test_tables_with_blocks_and_without_numbers_are_named() -> None:
    """Those of a lost registry whose files nobody named: they would be numbered anew, unnoticed."""
    wanted = after([N, A])
    said = left_out(wanted, {}, {TABLE, "d.gone", "d.other"})

    assert "no field numbers for d.gone, d.other: " in said
    assert left_out(wanted, {}, {TABLE}) == ""
    assert left_out(wanted, versions_of([TableSchema(table="d.gone", version=1)]), {"d.gone"}) == ""


def test_a_proto_file_gives_its_numbers(tmp_path: Path) -> None:
    """As it was printed: with what is reserved, and a name that protobuf does not allow."""
    odd = ColumnDef("a b", "Nullable(Int32)")
    old = after([N, A, B], [N, B], [N, odd, B])

    new = seeded(tmp_path, proto_text(old[-1]), N, odd, B)

    assert live(new) == live(old[-1]) == {"n": 1, "b": 3, "a b": 4}
    assert [c.number for c in new.columns if c.dropped] == [2]
    assert live(evolve(new, TABLE, "u", [N, A, odd, B])) == {**live(new), "a": 5}


def test_the_number_of_a_computed_column_is_never_given_again(tmp_path: Path) -> None:
    """Its values may still come, of producers from before it was MATERIALIZED."""
    computed = ColumnDef("a", "String", "MATERIALIZED")
    old = after([N, A], [N, computed])

    new = seeded(tmp_path, proto_text(old[-1]), N, computed)

    assert live(evolve(new, TABLE, "u", [N, B, computed])) == {"n": 1, "b": 3, "a": 4}


def test_a_field_without_a_column_is_never_given_again(tmp_path: Path) -> None:
    text = proto_text(after([N, A, B])[-1])

    new = seeded(tmp_path, text, N, A)

    assert live(new) == {"n": 1, "a": 2}
    assert live(evolve(new, TABLE, "u", [N, A, B])) == {"n": 1, "a": 2, "b": 4}
    assert RowCodec(new).gone_numbers == [3]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ([N, ColumnDef("a", "Int64")], "field 2 is string here and int64"),
        ([N, ColumnDef("a", "Array(String)")], "field 2 is single here"),
        ([B], "no column that rows could fill"),
    ],
)
def test_a_file_that_does_not_fit_the_table(
    tmp_path: Path, columns: list[ColumnDef], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        seeded(tmp_path, proto_text(after([N, A])[-1]), *columns)


def test_a_file_that_reserves_every_number(tmp_path: Path) -> None:
    row = "message Row {\n"
    text = proto_text(after([N, A])[-1]).replace(row, f"{row}  reserved 9 to max;\n")
    assert "9 to max" in text
    with pytest.raises(ConfigError, match="reserves more than"):
        seeded(tmp_path, text, N, A)


MINUS, PLUS, UNDER = (ColumnDef(name, "Int32") for name in ("a-b", "a+b", "a_b"))


def columns_of(
    fields: dict[int, str], comments: dict[int, str], columns: list[str]
) -> dict[int, str]:
    return match_columns(fields, comments, columns, "Row and d.t")


CLASH = """
syntax = "proto3";
message Row {{
  optional int32 a_b_n1 = 1;{comment}
  optional int32 a_b = 2;
}}
"""


@pytest.mark.parametrize("columns", [[UNDER, MINUS], [MINUS, UNDER]], ids=["later first", "as was"])
@pytest.mark.parametrize("comment", ["", "  // column 'a-b': Int32"])
def test_columns_that_protobuf_calls_alike_keep_their_numbers(
    tmp_path: Path, columns: list[ColumnDef], comment: str
) -> None:
    """Swapped, they would take each other's values: both are of one type."""
    text = CLASH.format(comment=comment)
    assert live(seeded(tmp_path, text, *columns)) == {"a-b": 1, "a_b": 2}


def test_a_file_as_it_was_printed_tells_columns_apart(tmp_path: Path) -> None:
    """By what stands behind the fields, where the names are the same but for a number."""
    old = after([MINUS, PLUS, N], [MINUS, PLUS, N, UNDER])
    for version in old:
        text = proto_text(version)
        assert live(seeded(tmp_path, text, UNDER, PLUS, N, MINUS)) == live(version)
    assert live(seeded(tmp_path, proto_text(old[0]), UNDER, PLUS, N)) == {"a+b": 2, "n": 3}


def test_one_column_that_is_named_behind_two_fields(tmp_path: Path) -> None:
    text = CLASH.format(comment="").replace(";\n", ";  // column 'a-b'\n")
    with pytest.raises(ConfigError, match="fields 1 and 2 both say that they are column 'a-b'"):
        seeded(tmp_path, text, MINUS)


@pytest.mark.parametrize(
    ("fields", "columns"),
    [
        ({1: "a_b"}, ["a-b", "a_b"]),
        ({1: "a_b", 2: "a_b_n2"}, ["a+b", "a-b"]),
        ({1: "____n1", 2: "____n2"}, ["год", "имя"]),
        ({1: "a_b_n1", 2: "c"}, ["a_b"]),
        ({4: "a_b", 5: "a_b_n5"}, ["a-b"]),
    ],
    ids=["added since", "both changed", "no letter of them", "called as none", "one is gone"],
)
def test_names_that_do_not_tell_the_column(fields: dict[int, str], columns: list[str]) -> None:
    """The next step makes them tell it."""
    with pytest.raises(ConfigError, match=r"Row and d.t: the names do not tell") as caught:
        columns_of(fields, {}, columns)
    said = str(caught.value)
    assert all(repr(one) in said for one in columns), said
    number, column = min(fields), re.findall(r"// (column '\S+')", said)[-1]
    assert columns_of(fields, {number: f" {column}\n"}, columns)[number] == columns[-1]


def test_names_that_tell_the_column() -> None:
    """A file that somebody wrote by hand need not avoid clashes as the product does."""
    assert columns_of({1: "ab", 2: "a_b"}, {}, ["a_b", "ab"]) == {1: "ab", 2: "a_b"}
    assert columns_of({1: "a_b", 2: "a_b_n2"}, {}, ["a_b_n2", "a-b"]) == {1: "a-b", 2: "a_b_n2"}
    assert columns_of({1: "userId", 2: "user_id_n2"}, {}, ["user_id", "userId"]) == {
        1: "userId",
        2: "user_id",
    }
    assert columns_of({1: "a_b", 2: "c"}, {1: " column 'a-b': Int32"}, ["a_b", "c"]) == {2: "c"}
    assert columns_of({1: "a"}, {1: " column 'b' was before"}, ["a", "b"]) == {1: "a"}


def test_two_files_of_one_table() -> None:
    one, other = after([N, A])[0], after([A, N])[0]
    assert of_files([("new.proto", one), ("copy.proto", one)]) == [one]
    with pytest.raises(ConfigError, match=r"new\.proto and old\.proto are both of d\.t, with"):
        of_files([("new.proto", one), ("old.proto", other)])


def test_what_another_process_wrote_meanwhile_is_no_claim_that_nothing_was_written() -> None:
    with pytest.raises(ConfigError, match="stay for ever; another was first"):
        lacking(after([N, A]), versions_of(after([N, B])), "another was first")
