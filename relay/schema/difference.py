"""Lists what changed in a table's row message from one version to another.

Receives two versions of a table's schema, gives the changes. Pure.
"""

# pure

from __future__ import annotations

from typing import NamedTuple

from relay.records_pb2 import Column, TableSchema


class ColumnChange(NamedTuple):
    """One change.

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
    """Compare by field number. A renamed column is one dropped and one added."""
    was, now = _live(before), _live(after)
    differences = []
    for name in was.keys() | now.keys():
        old, new = was.get(name), now.get(name)
        if old is None and new is not None:
            differences.append(ColumnChange("added", name, "", _text(new), new.number))
        elif new is None and old is not None:
            differences.append(ColumnChange("dropped", name, _text(old), "", old.number))
        elif old is not None and new is not None and old.type != new.type:
            differences.append(ColumnChange("type", name, _text(old), _text(new), new.number))
        elif old is not None and new is not None and old.default_kind != new.default_kind:
            differences.append(ColumnChange("default", name, _text(old), _text(new), new.number))
    if before.uuid != after.uuid:
        differences.append(ColumnChange("re-created", "", before.uuid, after.uuid, 0))
    return sorted(differences, key=lambda change: (change.number, change.kind))


def _live(schema: TableSchema) -> dict[str, Column]:
    return {column.name: column for column in schema.columns if not column.dropped}


def _text(column: Column) -> str:
    return f"{column.type} {column.default_kind}".rstrip()
