"""Would what a producer's `.proto` writes still be read?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relay.errors import ConfigError
from relay.rows.row_codec import RowCodec
from relay.schema.compatibility import CompatibilityFinding, findings
from relay.schema.evolution import ColumnDef, evolve, live_columns, needs_value, proto_text
from relay.schema.protoc import row_message

COLUMNS = [
    ColumnDef("id", "Int64"),
    ColumnDef("name", "Nullable(String)"),
    ColumnDef("old", "Int32"),
    ColumnDef("small", "UInt8"),
    ColumnDef("raw", "FixedString(4)"),
]


def schema() -> Any:
    """Of a table whose third column was dropped."""
    first = evolve(None, "shop.orders", "u", COLUMNS)
    second = evolve(first, "shop.orders", "u", [c for c in COLUMNS if c.name != "old"])
    assert second is not None
    return second


def checked(directory: Path, fields: str) -> list[tuple[bool, str, str]]:
    """What is found in a file whose row message has these fields."""
    file = directory / "rows.proto"
    file.write_text(
        'syntax = "proto3";\npackage shop.orders;\nmessage RowBatch { repeated Row rows = 1; }\n'
        f"message Other {{ int32 x = 1; }}\nenum Kind {{ A = 0; }}\nmessage Row {{ {fields} }}\n"
    )
    found = compare(file)
    assert all(one.what for one in found)
    return [(one.problem, one.kind, one.field) for one in found]


def compare(file: Path) -> list[CompatibilityFinding]:
    current = schema()
    read: Any = RowCodec(current).message_class.DESCRIPTOR
    needed = {c.number: c.name for c in live_columns(current) if needs_value(c)}
    return findings(row_message(file), read, {3: "old Int32"}, needed)


def test_the_printed_proto_is_compatible(tmp_path: Path) -> None:
    """Whatever `relay schema proto` prints has no finding at all."""
    file = tmp_path / "printed.proto"
    file.write_text(proto_text(schema()))
    assert compare(file) == []


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ("optional int64 id = 1;", []),
        ("optional int64 id = 1; optional int32 more = 9;", [(True, "unknown", "more")]),
        ("optional int32 back = 3;", [(True, "reserved", "back")]),
        ("optional string id = 1;", [(True, "type", "id")]),
        ("optional sint64 id = 1;", [(True, "type", "id")]),
        ("optional uint64 id = 1;", [(True, "type", "id")]),
        ("optional int32 id = 1;", []),
        ("optional bool id = 1;", []),
        ("optional Kind id = 1;", []),
        ("optional int64 small = 4;", [(True, "type", "small")]),
        ("optional bytes name = 2;", [(True, "type", "name")]),
        ("optional string raw = 5;", []),
        ("repeated int64 id = 1;", [(True, "repeated", "id")]),
        ("optional Other id = 1;", [(True, "type", "id")]),
        ("optional int64 key = 1;", [(False, "name", "key")]),
        ("optional string id = 2;", [(True, "name", "id")]),
        ("int64 id = 1;", [(False, "presence", "id")]),
        (
            "string id = 1; optional int32 back = 3; optional int32 more = 9;",
            [
                (True, "type", "id"),
                (False, "presence", "id"),
                (True, "reserved", "back"),
                (True, "unknown", "more"),
            ],
        ),
    ],
)
def test_each_difference_is_named(
    tmp_path: Path, fields: str, found: list[tuple[bool, str, str]]
) -> None:
    """Problems where a value would not arrive as meant, notes where it would."""
    assert checked(tmp_path, fields) == found


def test_a_value_that_nothing_stands_for_must_be_written(tmp_path: Path) -> None:
    """An EPHEMERAL column that is not Nullable."""
    file = tmp_path / "rows.proto"
    file.write_text('syntax = "proto3"; package a.b; message Row { optional int64 id = 1; }')
    first = evolve(
        None, "a.b", "u", [ColumnDef("id", "Int64"), ColumnDef("e", "Int8", "EPHEMERAL")]
    )
    assert first is not None
    read: Any = RowCodec(first).message_class.DESCRIPTOR
    [found] = findings(row_message(file), read, {}, {2: "e"})
    assert (found.problem, found.kind, found.field, found.number) == (True, "missing", "e", 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("message Row {", "protoc refuses"),
        ('import "gone.proto";', "gone.proto"),
        ('syntax = "proto3"; message Thing {}', "no message RowBatch or Row"),
        ('syntax = "proto3"; message RowBatch { bytes rows = 1; }', "no `repeated Row rows = 1`"),
    ],
)
def test_a_file_that_is_none_is_said(tmp_path: Path, text: str, said: str) -> None:
    """With protoc's own words, or the messages there are."""
    file = tmp_path / "rows.proto"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        row_message(file)


def test_imports_are_looked_for_beside_the_file(tmp_path: Path) -> None:
    """A row message may hold those of other files; another message is found by name."""
    (tmp_path / "parts.proto").write_text('syntax = "proto3"; message Part { int32 x = 1; }')
    file = tmp_path / "rows.proto"
    file.write_text('syntax = "proto3"; import "parts.proto"; message Mine { Part part = 1; }')
    assert row_message(file, "Mine").fields_by_number[1].message_type.name == "Part"
