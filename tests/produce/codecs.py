"""A table with a column of every kind, and its codec, for the tests here."""

from __future__ import annotations

from relay.produce.row_encoder import RowEncoder
from relay.rows.row_codec import RowCodec
from relay.schema.evolution import ColumnDef, evolve

COLUMNS = (
    ColumnDef("small", "Int8"),
    ColumnDef("big", "Nullable(UInt64)"),
    ColumnDef("word", "LowCardinality(Nullable(String))"),
    ColumnDef("day", "Date"),
    ColumnDef("second", "DateTime('UTC')"),
    ColumnDef("milli", "DateTime64(3)"),
    ColumnDef("nano", "DateTime64(9)"),
    ColumnDef("ratio", "Float64"),
    ColumnDef("flag", "Bool"),
    ColumnDef("code", "FixedString(3)"),
    ColumnDef("kind", "Enum8('x' = 1, 'y' = 2)"),
    ColumnDef("id", "UUID"),
    ColumnDef("note", "String", "DEFAULT"),
)


def codec(*columns: ColumnDef) -> RowCodec:
    schema = evolve(None, "d.t", "uuid", columns or COLUMNS)
    assert schema is not None
    return RowCodec(schema)


def encoder(*columns: ColumnDef) -> RowEncoder:
    return RowEncoder(codec(*columns))
