"""Gives an app's schema registry field numbers that are in use already; pure.

Receives another app's versions, or a producer's row message beside the table's columns; gives the
schemas to propose, or why not. An app numbers columns in the order of the table of today: behind
producers that got theirs from an earlier one, values would go into wrong columns.
"""

# pure

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf import descriptor_pb2

from relay.errors import ConfigError
from relay.records_pb2 import TableSchema
from relay.schema.compatibility import findings
from relay.schema.evolution import unsupported_columns
from relay.schema.types.proto_shape import field_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from google.protobuf.descriptor import Descriptor, FieldDescriptor

    from relay.schema.evolution import ColumnDef

    Versions = Mapping[str, Mapping[int, TableSchema]]

_IN_THE_WAY = {"type", "repeated"}
"""Findings for which values would be read as others, or not at all."""
_MOST_RESERVED = 10_000
"""`reserved 100 to max` would leave no number for a new column."""


def lacking(wanted: Sequence[TableSchema], there: Versions) -> list[TableSchema]:
    """Return those that the registry does not have yet, in their order.

    Raises:
        ConfigError: it has others; what they number is numbered for ever.
    """
    by_place = {(one.table, one.version): one for one in wanted}
    for table, versions in sorted(there.items()):
        for version, found in versions.items():
            same = by_place.get((table, version))
            if same is None or list(same.columns) != list(found.columns):
                raise ConfigError(
                    f"the app's registry already has version {version} of {table}, with numbers "
                    "of its own, which stay for ever; nothing was written",
                    "seed an app before its first start; or set another `app`",
                )
    return [one for one in wanted if one.version not in there.get(one.table, {})]


def copied(versions: Versions) -> list[TableSchema]:
    """Return every version of every table, each behind the one that it is based on."""
    return [of_table[v] for _, of_table in sorted(versions.items()) for v in sorted(of_table)]


def numbered(
    table: str,
    uuid: str,
    columns: Sequence[ColumnDef],
    written: Descriptor,
    message_of: Callable[[TableSchema], Descriptor],
) -> TableSchema:
    """Return a table's first version with the numbers of a producer's row message.

    Columns without a field get the next numbers once the relay sees them. A field without a column,
    and what the file reserves, is a column that is gone: its number is never given again.

    Args:
        table: as database.table.
        uuid: of the table.
        columns: as ClickHouse lists them now.
        written: the producer's row message.
        message_of: the row message that a schema makes.

    Raises:
        ConfigError: no field is a column, one has another type than its column, or rows cannot
            carry it.
    """
    schema = TableSchema(table=table, version=1, uuid=uuid)
    left = {column.name: column for column in columns}
    for number, field in sorted(_numbers(written).items()):
        column = None if field is None else _meant(field, left)
        if column is None:
            schema.columns.add(number=number, dropped=True, name=field.name if field else "")
            continue
        del left[column.name]
        schema.columns.add(
            name=column.name, type=column.type, number=number, default_kind=column.default_kind
        )
    if unsupported := unsupported_columns(schema):
        raise ConfigError(f"{written.full_name}: {'; '.join(unsupported)}")
    problems = [
        one
        for one in findings(written, message_of(schema), {}, {})
        if one.problem and one.kind in _IN_THE_WAY
    ]
    if problems:
        said = "; ".join(f"{one.field}: {one.what}" for one in problems)
        raise ConfigError(
            f"{written.full_name} and {table}: {said}",
            "these columns changed since; put `reserved` and the number in the field's place, and "
            "they get new numbers",
        )
    return schema


def _numbers(written: Descriptor) -> Mapping[int, FieldDescriptor | None]:
    """Field by number; None: the number is reserved."""
    proto = descriptor_pb2.DescriptorProto()
    written.CopyToProto(proto)
    ranges = [range(one.start, one.end) for one in proto.reserved_range]
    if sum(map(len, ranges)) > _MOST_RESERVED:
        raise ConfigError(
            f"{written.full_name} reserves more than {_MOST_RESERVED} numbers",
            "leave out ranges that no producer ever sent",
        )
    reserved: dict[int, FieldDescriptor | None] = {n: None for one in ranges for n in one}
    return reserved | {field.number: field for field in written.fields}


def _meant(field: FieldDescriptor, columns: Mapping[str, ColumnDef]) -> ColumnDef | None:
    """The column that `relay schema proto` calls so: by its name, or one that protobuf allows."""
    if (same := columns.get(field.name)) is not None:
        return same
    return next((c for c in columns.values() if field.name in _called(c.name, field.number)), None)


def _called(column: str, number: int) -> Iterator[str]:
    name = field_names([(number, column)])[number]
    yield name
    yield f"{name}_n{number}"
