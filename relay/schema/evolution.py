"""Evolves the row message of a table over time: which column has which field number.

Receives a table's columns as ClickHouse lists them now and the schema before,
gives the schema after, what changed, and the `.proto` for producers. Pure: never reads a
server or a clock. A number, once given, never means another column, nor a type for which
its values would mean something else; a column is what its name says, also after it was away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from relay import names
from relay.records_pb2 import Column, TableSchema
from relay.schema.row_descriptor import message_lines
from relay.schema.types.column_type import UnsupportedType, parse_type, reads_alike
from relay.schema.types.proto_shape import ProtoField, ProtoMessage, field_names

_RESERVED_BY_PROTOBUF = range(19_000, 20_000)
"""Numbers that protobuf keeps for itself (protobuf.dev, language guide, field numbers)."""
_NOT_INSERTED = frozenset({"MATERIALIZED", "ALIAS"})
BLOCK_COLUMN = "_block"
"""Default of settings.loader.block_column."""


class ColumnDef(NamedTuple):
    """A column as ClickHouse's system.columns lists it."""

    name: str
    type: str
    default_kind: str = ""


def evolve(
    current: TableSchema | None,
    table: str,
    uuid: str,
    columns: Sequence[ColumnDef],
    block_column: str = BLOCK_COLUMN,
) -> TableSchema | None:
    """Return the schema after `current`, or None if nothing changed.

    A new column takes the next number, a dropped one keeps its number reserved, and takes it
    again if it comes back: whichever producers send it mean that column. A column
    whose type changed keeps its number where producers need not notice (`reads_alike`), else
    it is a drop and a new column. The block-id column is the loader's and takes no part.
    `written_at_ms` is left to the writer.
    """
    wanted = {column.name: column for column in columns if column.name != block_column}
    after = TableSchema(
        table=table,
        version=(current.version if current else 0) + 1,
        based_on=current.version if current else 0,
        uuid=uuid,
    )
    for old in current.columns if current else ():
        kept = after.columns.add()
        kept.CopyFrom(old)
        if old.dropped:
            continue
        now = wanted.get(old.name)
        if now is None or not reads_alike(old.type, now.type):
            kept.dropped = True
        else:
            kept.type, kept.default_kind = now.type, now.default_kind
            del wanted[old.name]
    number = max((column.number for column in after.columns), default=0)
    for column in wanted.values():
        if (back := _dropped(after, column)) is not None:
            back.dropped = False
            back.type, back.default_kind = column.type, column.default_kind
            continue
        number += 1
        if number in _RESERVED_BY_PROTOBUF:
            number = _RESERVED_BY_PROTOBUF.stop
        after.columns.add(
            name=column.name, type=column.type, number=number, default_kind=column.default_kind
        )
    unchanged = (
        current is not None
        and current.uuid == uuid
        and list(current.columns) == list(after.columns)
    )
    return None if unchanged else after


def takes_back(before: TableSchema | None, after: TableSchema) -> bool:
    """Return whether `after`, which `before` became, is more than columns nobody knew of yet."""
    return before is not None and list(after.columns)[: len(before.columns)] != list(before.columns)


def _dropped(schema: TableSchema, column: ColumnDef) -> Column | None:
    """What the column was when it was last there, with values that read alike."""
    alike = (
        old
        for old in schema.columns
        if old.dropped and old.name == column.name and reads_alike(old.type, column.type)
    )
    return max(alike, key=lambda old: old.number, default=None)


class ColumnChange(NamedTuple):
    """One change from a version to another.

    Attributes:
        kind: "added", "dropped", "type", "default", "re-created".
        column: empty where the whole table is meant.
        before, after: type with its default kind, or the table's UUID; empty where there is none.
        number: of the field afterwards; before, where the column was dropped; else 0.
    """

    kind: str
    column: str
    before: str
    after: str
    number: int


def changes(before: TableSchema, after: TableSchema) -> list[ColumnChange]:
    """Compare columns by name. A renamed column is one dropped and one added."""
    was, now = (
        {column.name: column for column in schema.columns if not column.dropped}
        for schema in (before, after)
    )
    gone = [old for name, old in was.items() if name not in now]
    differences = [ColumnChange("dropped", old.name, _typed(old), "", old.number) for old in gone]
    for name, new in now.items():
        old = was.get(name)
        if old is None:
            differences.append(ColumnChange("added", name, "", _typed(new), new.number))
        elif (old.type, old.default_kind) != (new.type, new.default_kind):
            kind = "default" if old.type == new.type else "type"
            differences.append(ColumnChange(kind, name, _typed(old), _typed(new), new.number))
    if before.uuid != after.uuid:
        differences.append(ColumnChange("re-created", "", before.uuid, after.uuid, 0))
    return sorted(differences, key=lambda change: (change.number, change.kind))


def _typed(column: Column) -> str:
    return f"{column.type} {column.default_kind}".rstrip()


def live_columns(schema: TableSchema) -> list[Column]:
    """Return the columns that rows carry: not dropped, not computed by ClickHouse itself."""
    return [
        column
        for column in schema.columns
        if not column.dropped and column.default_kind not in _NOT_INSERTED
    ]


def needs_value(column: Column) -> bool:
    """Return whether a field left out cannot be repaired by ClickHouse.

    A NULL in an EPHEMERAL column is not replaced by its default, as it is in all others:
    the INSERT of the whole block would fail (CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN).
    """
    nullable = column.type.startswith(("Nullable(", "LowCardinality(Nullable("))
    return column.default_kind == "EPHEMERAL" and not nullable


def unsupported_columns(schema: TableSchema) -> list[str]:
    """Return why rows cannot carry the table, a sentence per column; empty if they can."""
    columns = live_columns(schema)
    problems = [] if columns else [f"table {schema.table} has no column that rows could fill"]
    for column in columns:
        try:
            parse_type(column.type)
        except UnsupportedType as problem:
            problems.append(f"column {column.name} of {schema.table}: {problem}")
    return problems


def row_fields(columns: Iterable[Column]) -> list[ProtoField]:
    """Return the fields of the row message that live columns make.

    Raises:
        UnsupportedType: a column's type cannot be carried; names it alone, not the table.
    """
    columns = list(columns)
    names = field_names((column.number, column.name) for column in columns)
    fields = []
    for column in columns:
        kind = parse_type(column.type)
        name = names[column.number]
        renamed = "" if name == column.name else f"column {column.name!r}: "
        note = f"; {kind.meaning}" if kind.meaning else ""
        note += "; EPHEMERAL: must be given" if needs_value(column) else ""
        comment = f"{renamed}{column.type}{note}"
        fields.append(ProtoField(name, column.number, kind.kind.shape, comment))
    return fields


def proto_text(schema: TableSchema) -> str:
    """Return the `.proto` of a table's row message and row batch, for producers in any language.

    Raises:
        UnsupportedType: a column's type cannot be carried.
    """
    columns = live_columns(schema)
    database, table = names.split_table(schema.table)
    head = [
        f"// Rows of {schema.table}, schema version {schema.version}.",
        "// Generated by `relay schema proto`; made anew when the table changes.",
        "// A field number, once given, never means another column or other values.",
        "//",
        f"// A message: header `{names.TABLE_HEADER}` = {schema.table}, value = a RowBatch.",
        "// A field left out is NULL in a Nullable column and the column's DEFAULT in another.",
        'syntax = "proto3";',
        f"package {database}.{table};",
        "",
        "message RowBatch {",
        "  repeated Row rows = 1;",
        "}",
        "",
    ]
    gone = sorted({old.number for old in schema.columns} - {live.number for live in columns})
    numbers = ", ".join(map(str, gone))
    reserved = [f"reserved {numbers};  // columns dropped, changed or computed"] if gone else []
    message = ProtoMessage(tuple(row_fields(columns)))
    return "\n".join([*head, *message_lines(message, extra=reserved), ""])
