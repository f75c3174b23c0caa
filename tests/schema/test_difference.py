"""What changed in a table's row message."""

from __future__ import annotations

from relay.records_pb2 import TableSchema
from relay.schema.evolution import ColumnChange, ColumnDef, changes, evolve


def evolved(before: TableSchema | None, uuid: str, *columns: ColumnDef) -> TableSchema:
    after = evolve(before, "d.t", uuid, columns)
    assert after is not None
    return after


def test_every_kind_of_change_is_named() -> None:
    """Added, dropped, another type, another default kind, and the table made anew."""
    a, b, c = ColumnDef("a", "Int8"), ColumnDef("b", "Date"), ColumnDef("c", "String")
    first = evolved(None, "u1", a, b, c)
    second = evolved(
        first,
        "u2",
        ColumnDef("a", "Float64"),
        ColumnDef("c", "String", "DEFAULT"),
        ColumnDef("d", "UUID"),
    )

    assert changes(first, second) == [
        ColumnChange("re-created", "", "u1", "u2", 0),
        ColumnChange("dropped", "b", "Date", "", 2),
        ColumnChange("default", "c", "String", "String DEFAULT", 3),
        ColumnChange("type", "a", "Int8", "Float64", 4),
        ColumnChange("added", "d", "", "UUID", 5),
    ]


def test_nothing_changed_is_nothing() -> None:
    """And all of a table's first version is added."""
    first = evolved(None, "u", ColumnDef("a", "Int8"))
    assert changes(first, first) == []
    assert changes(TableSchema(uuid="u"), first) == [ColumnChange("added", "a", "", "Int8", 1)]


def test_a_type_that_reads_alike_keeps_its_number() -> None:
    """The change is named all the same."""
    first = evolved(None, "u", ColumnDef("a", "Int8"))
    second = evolved(first, "u", ColumnDef("a", "Nullable(Int16)"))
    assert changes(first, second) == [ColumnChange("type", "a", "Int8", "Nullable(Int16)", 1)]
