"""A table's row message as a codec: protobuf rows to Arrow columns and back.

Receives a table's schema, gives a protobuf class made at run time and the two
conversions, by ptars, a whole array of rows at a time. Never judges values: what
lies outside a column's range is relay.decode's to find.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ptars
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from relay.schema import field_names, live_columns, needs_value
from relay.types import ColumnType, UnsupportedType, parse_type

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from relay.records_pb2 import Column, TableSchema

CLICKHOUSE_TYPE = b"clickhouse"
"""Key of the Arrow field metadata that holds the column's ClickHouse type."""
_FIELD = descriptor_pb2.FieldDescriptorProto


class RowCodec:
    """Conversions of one version of one table's row message.

    Args:
        schema: of the table; its live columns make the message.

    Raises:
        UnsupportedType: a live column's type cannot be carried; names table, column and type.
        ValueError: no column is left for rows to carry.
    """

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema
        columns = live_columns(schema)
        if not columns:
            raise ValueError(f"table {schema.table} has no column that rows could fill")
        self.types = tuple(_column_type(schema.table, column) for column in columns)
        """Of the live columns, in their order."""
        self.needs_value = tuple(needs_value(column) for column in columns)
        """Per live column: whether a row without it is bad."""
        self.column_names = [column.name for column in columns]
        fields = field_names(columns)
        self.field_names = [fields[column.number] for column in columns]
        self.arrow_schema = pa.schema(
            [
                pa.field(name, kind.arrow, metadata={CLICKHOUSE_TYPE: kind.clickhouse.encode()})
                for name, kind in zip(self.column_names, self.types, strict=True)
            ]
        )
        """Of blocks."""
        self.wire_schema = pa.schema(
            [pa.field(n, kind.wire) for n, kind in zip(self.column_names, self.types, strict=True)]
        )
        """Of rows as protobuf holds them: what `encode_rows` takes and `decode_rows` gives."""
        file = _file_descriptor(columns, self.types, self.field_names)
        pool = descriptor_pool.DescriptorPool()
        pool.Add(file)
        descriptor = pool.FindMessageTypeByName("relay.rows.Row")
        self.message_class: type[Message] = message_factory.GetMessageClass(descriptor)
        """The row message's class, in a descriptor pool of its own; fields are `field_names`."""
        self._handler: Any = ptars.HandlerPool([descriptor.file]).get_for_message(descriptor)

    def decode_rows(self, rows: pa.BinaryArray) -> pa.RecordBatch:
        """Serialized rows (no nulls) as columns of `wire_schema`, about 20 ns per value.

        Raises:
            ValueError: a row does not parse.
        """
        batch: pa.RecordBatch = self._handler.array_to_record_batch(rows)
        return pa.RecordBatch.from_arrays(batch.columns, schema=self.wire_schema)

    def encode_rows(self, batch: pa.RecordBatch) -> pa.BinaryArray:
        """The rows of a batch, serialized. A null is a field left out.

        Args:
            batch: columns of `wire_schema`, in any order; one that is missing is all nulls.

        Raises:
            ValueError: a column that the table does not have, or of another Arrow type.
        """
        unknown = sorted(set(batch.schema.names) - set(self.column_names))
        if unknown:
            raise ValueError(f"{self.schema.table} has no column {', '.join(unknown)}")
        arrays = []
        for wanted in self.wire_schema:
            if wanted.name not in batch.schema.names:
                arrays.append(pa.nulls(batch.num_rows, wanted.type))
                continue
            array = batch.column(wanted.name)
            if array.type != wanted.type:
                raise ValueError(f"column {wanted.name} is {array.type}, not {wanted.type}")
            arrays.append(array)
        named: Any = pa.RecordBatch.from_arrays(arrays, names=self.field_names)
        encoded: pa.BinaryArray = self._handler.record_batch_to_array(named)
        return encoded


def _column_type(table: str, column: Column) -> ColumnType:
    try:
        return parse_type(column.type)
    except UnsupportedType as problem:
        raise UnsupportedType(f"column {column.name} of {table}: {problem}") from problem


def _file_descriptor(
    columns: list[Column], types: tuple[ColumnType, ...], names: list[str]
) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="relay/rows.proto", package="relay.rows", syntax="proto3"
    )
    row = file.message_type.add(name="Row")
    for index, (column, kind, name) in enumerate(zip(columns, types, names, strict=True)):
        row.field.add(
            name=name,
            number=column.number,
            type=_FIELD.Type.Value(f"TYPE_{kind.proto.upper()}"),
            label=_FIELD.LABEL_OPTIONAL,
            proto3_optional=True,
            oneof_index=index,
        )
        # proto3 keeps explicit presence as a oneof of its own, which nobody can name.
        row.oneof_decl.add(name=f"_{column.number}_presence")
    return file
