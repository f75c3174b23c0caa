"""Gives an app's schema registry field numbers that are in use already; pure.

Receives another app's versions, or a producer's row message beside the table's columns; gives the
schemas to propose, or why not. An app numbers columns in the order of the table of today: behind
producers that got theirs from an earlier one, values would go into wrong columns.
"""

# pure

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor

from relay.errors import ConfigError
from relay.records_pb2 import TableSchema
from relay.schema.compatibility import findings
from relay.schema.evolution import ColumnDef, unsupported_columns
from relay.schema.seed_matching import match_columns

Versions = Mapping[str, Mapping[int, TableSchema]]


NOTHING_WRITTEN = "nothing was written"
_IN_THE_WAY = {"type", "repeated"}
"""Findings for which values would be read as others, or not at all."""
_MOST_RESERVED = 10_000
"""`reserved 100 to max` would leave no number for a new column."""


def of_files(given: Sequence[tuple[str, TableSchema]]) -> list[TableSchema]:
    """Return the schemas that files give, each once.

    Raises:
        ConfigError: two files give one table different numbers.
    """
    by_table: dict[str, tuple[str, TableSchema]] = {}
    for file, schema in given:
        first, other = by_table.setdefault(schema.table, (file, schema))
        if list(other.columns) != list(schema.columns):
            raise ConfigError(
                f"{first} and {file} are both of {schema.table}, with different numbers; "
                f"{NOTHING_WRITTEN}",
                "name only the one that its producers use",
            )
    return [schema for _, schema in by_table.values()]


def lacking(
    wanted: Sequence[TableSchema], there: Versions, outcome: str = NOTHING_WRITTEN
) -> list[TableSchema]:
    """Return those that the registry does not have yet, in their order.

    Args:
        wanted: at most one of each version of a table.
        there: what the registry has.
        outcome: what became of them, for the error.

    Raises:
        ConfigError: it has others; what they number is numbered for ever.
    """
    by_place = {(schema.table, schema.version): schema for schema in wanted}
    for table, versions in sorted(there.items()):
        for version, registered in versions.items():
            same = by_place.get((table, version))
            if same is None or list(same.columns) != list(registered.columns):
                raise ConfigError(
                    f"the app's registry already has version {version} of {table}, with numbers "
                    f"of its own, which stay for ever; {outcome}",
                    "seed an app before its first start, all of its tables in one call; or set "
                    "another `app`",
                )
    return [schema for schema in wanted if schema.version not in there.get(schema.table, {})]


def left_out(wanted: Sequence[TableSchema], there: Versions, with_blocks: Iterable[str]) -> str:
    """Return what to say of tables that have blocks and would get new numbers; empty: none would.

    The registry has the versions `there`, and is given `wanted`.
    """
    without = sorted({*with_blocks} - {schema.table for schema in wanted} - there.keys())
    if not without:
        return ""
    return (
        f"no field numbers for {', '.join(without)}: these tables have block topics, and the relay "
        "will number their columns in their order of today; where messages with other numbers are "
        "left, name their .proto files in this call, too"
    )


def copied(versions: Versions) -> list[TableSchema]:
    """Return every version of every table, each behind the one that it is based on."""
    return [of_table[v] for _, of_table in sorted(versions.items()) for v in sorted(of_table)]


def numbered(
    table: str,
    uuid: str,
    columns: Sequence[ColumnDef],
    written: Descriptor,
    message_of: Callable[[TableSchema], Descriptor],
    comments: Mapping[int, str] = MappingProxyType({}),
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
        comments: behind the fields, by number.

    Raises:
        ConfigError: no field is a column, one may be several columns or has another type than its
            column, or rows cannot carry it.
    """
    schema = TableSchema(table=table, version=1, uuid=uuid)
    by_name = {column.name: column for column in columns}
    fields = {field.number: field.name for field in written.fields}
    of_field = match_columns(fields, comments, by_name, f"{written.full_name} and {table}")
    for number in sorted({*fields, *_reserved(written)}):
        if number not in of_field:
            schema.columns.add(number=number, dropped=True, name=fields.get(number, ""))
            continue
        column = by_name[of_field[number]]
        schema.columns.add(
            name=column.name, type=column.type, number=number, default_kind=column.default_kind
        )
    if unsupported := unsupported_columns(schema):
        raise ConfigError(f"{written.full_name}: {'; '.join(unsupported)}")
    problems = [
        finding
        for finding in findings(written, message_of(schema), {}, {})
        if finding.problem and finding.kind in _IN_THE_WAY
    ]
    if problems:
        said = "; ".join(f"{finding.field}: {finding.what}" for finding in problems)
        raise ConfigError(
            f"{written.full_name} and {table}: {said}",
            "these columns changed since; put `reserved` and the number in the field's place, and "
            "they get new numbers",
        )
    return schema


def _reserved(written: Descriptor) -> set[int]:
    proto = descriptor_pb2.DescriptorProto()
    written.CopyToProto(proto)
    ranges = [range(reserved.start, reserved.end) for reserved in proto.reserved_range]
    if sum(map(len, ranges)) > _MOST_RESERVED:
        raise ConfigError(
            f"{written.full_name} reserves more than {_MOST_RESERVED} numbers",
            "leave out ranges that no producer ever sent",
        )
    return {n for numbers in ranges for n in numbers}
