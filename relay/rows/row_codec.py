"""A table's row message as a codec: protobuf rows to Arrow columns and back.

Receives a table's schema, gives a protobuf class made at run time and the two
conversions, by ptars, a whole array of rows at a time. Never judges values: what
lies outside a column's range is relay.rows.decode's to find. Texts are decoded as
bytes, in two thirds of the time, and checked afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.message import Message

from relay.arrow.array_memory import offsets_of
from relay.records_pb2 import Column, TableSchema
from relay.rows.decoder_guards import decode_messages, handler_of
from relay.rows.flat_decoder import FlatRows
from relay.rows.list_elements import counted_fields, element_bytes, filled_bytes, value_bits
from relay.schema.evolution import live_columns, needs_value, row_fields
from relay.schema.row_descriptor import row_descriptor
from relay.schema.types.column_type import CLICKHOUSE_TYPE, ColumnType, UnsupportedType, parse_type
from relay.schema.types.nested import Array, list_of
from relay.schema.types.proto_shape import ProtoField, Shape, widened

_ASCII = 0x7F
_GONE_BYTES = 8
"""Of a row's value of a column that is gone, which is decoded to be seen."""


class RowCodec:
    """Conversions of one version of one table's row message, which its live columns make.

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
        self.flattened = _flattened(self.column_names, self.types)
        """Columns that are one Nested: per Nested the indices of its Arrays."""
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
        """Of rows as protobuf holds them: what `encode_rows` takes."""
        live = row_fields(columns)
        self.field_names = [field.name for field in live]
        types = {column.number: column.type for column in schema.columns}
        gone = [column for column in schema.columns if column not in columns]
        self.gone_numbers = [column.number for column in gone]
        """Numbers of columns that were dropped, changed or are computed by now: known, unread."""
        self.outdated = {
            column.number: column
            for column in gone
            if column.dropped and column.name in self.column_names
        }
        """Of these the ones whose column is there with another type, so that a value is lost."""
        self.row_fields = [*live, *_gone_fields(gone)]
        """Of the row message with what is gone, as far as it can be decoded; live ones first."""
        gone_bytes = _GONE_BYTES * (len(self.row_fields) - len(live))
        live_bits = sum(value_bits(type_.kind) for type_ in self.types)
        self.row_bytes = max(1, live_bits // 8 + gone_bytes)
        """That a row takes as columns, whatever fields it sets; at least one."""
        self.flat = FlatRows.of(live, self.types)
        """The compiled decoder; None where a column is nested."""
        self.message_class: type[Message] = message_factory.GetMessageClass(
            row_descriptor(live, for_codec=False)
        )
        """The row message's class, in a descriptor pool of its own; fields are `field_names`."""
        # Under names of its own: those of columns that are gone may have come back.
        renamed = [replace(field, name=f"f{field.number}") for field in self.row_fields]
        self._codec_names = [field.name for field in renamed]
        self._encoder = handler_of(renamed)
        self._text = [_is_text(field.shape) for field in renamed]
        # ptars keeps the lower half of a number too wide for its field, without a word.
        raw = [
            replace(one, shape=replace(one.shape, scalar="bytes") if text else widened(one.shape))
            for one, text in zip(renamed, self._text, strict=True)
        ]
        self._handler = self._encoder if raw == renamed else handler_of(raw)
        of_gone = (parse_type(types[field.number]) for field in self.row_fields[len(live) :])
        kinds = [type_.kind for type_ in (*self.types, *of_gone)]
        self._counted = counted_fields(
            (field.number, field.shape, kind)
            for field, kind in zip(self.row_fields, kinds, strict=True)
        )
        self._counter = (
            handler_of([part.field for part in self._counted]) if self._counted else None
        )
        self.row_parts = MessageParts(self.row_fields)
        """Of `row_fields`: what of a row lies behind one length."""

    @property
    def counts_in_rows(self) -> bool:
        """Whether a column has lists of structs, which are counted before rows are decoded."""
        return self._counter is not None

    @property
    def counts_elements(self) -> bool:
        """Whether elements of lists may take much more as columns than in their messages."""
        return self.counts_in_rows or bool(self.flattened)

    def element_bytes(self, rows: pa.BinaryArray) -> npt.NDArray[np.int64]:
        """Return bytes that the elements of such lists take as columns, of each serialized row.

        Raises:
            ValueError: a row does not parse.
        """
        batch = decode_messages(self._counter, rows)
        columns = [batch.column(part.field.name) for part in self._counted]
        return element_bytes(columns, self._counted)

    def filled_bytes(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Return bytes that each row's flattened Nested take beyond what the row holds.

        The batch is as `decode_all` gives it.
        """
        return filled_bytes(batch.columns, [type_.kind for type_ in self.types], self.flattened)

    def decode_all(self, rows: pa.BinaryArray) -> pa.RecordBatch:
        """Return serialized rows (no nulls) as a column for each of `row_fields`; 20 ns a value.

        All whole numbers have 64 bits, so that one too wide for its field is seen.

        Raises:
            ValueError: a row does not parse.
        """
        # ptars gives the columns by field number.
        batch = decode_messages(self._handler, rows).select(self._codec_names)
        columns = [
            as_text(column) if text else column
            for column, text in zip(batch.columns, self._text, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, names=self._codec_names)

    def wire_columns(self, batch: pa.RecordBatch) -> list[pa.Array[Any]]:
        """Return the live columns of what `decode_all` gave, in the types of `wire_schema`.

        Of a number too wide for its field the lower half is left: relay.rows.unknown_fields finds
        it.
        """
        return [
            column if column.type == kind.wire else column.cast(kind.wire, safe=False)
            for column, kind in zip(batch.columns, self.types, strict=False)  # gone ones follow
        ]

    def encode_all(self, batch: pa.RecordBatch) -> pa.BinaryArray:
        """Return what `decode_all` gave, serialized again as protobuf itself would."""
        raw = [
            as_bytes(column) if text else column
            for column, text in zip(batch.columns, self._text, strict=True)
        ]
        columns: Any = pa.RecordBatch.from_arrays(raw, names=self._codec_names)
        return self._handler.record_batch_to_array(columns)  # type: ignore[no-any-return]

    def encode_rows(self, batch: pa.RecordBatch) -> pa.BinaryArray:
        """Return the rows of a batch, serialized. A null is a field left out.

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
                arrays.append(left_out(batch.num_rows, wanted.type))
                continue
            array = batch.column(wanted.name)
            if array.type != wanted.type:
                raise ValueError(f"column {wanted.name} is {array.type}, not {wanted.type}")
            arrays.append(array)
        named: Any = pa.RecordBatch.from_arrays(arrays, names=self._codec_names[: len(arrays)])
        return self._encoder.record_batch_to_array(named)  # type: ignore[no-any-return]


class MessageParts:
    """What lies in a message behind one length: messages and packed lists, as bytes."""

    def __init__(self, fields: Sequence[ProtoField]) -> None:
        self.fields = fields
        """All of them, in their order."""
        self.messages = {
            field.number: MessageParts(field.shape.message.fields)
            for field in fields
            if field.shape.message is not None
        }
        """The same of the messages in it, by their field's number."""
        held = [field for field in fields if field.shape.message or field.shape.packable]
        self._numbers = sorted(field.number for field in held)
        as_bytes = [
            ProtoField(
                f"f{field.number}",
                field.number,
                Shape("bytes", repeated=field.shape.repeated and not field.shape.packable),
            )
            for field in held
        ]
        self._handler = handler_of(as_bytes) if as_bytes else None

    def read(self, messages: pa.BinaryArray) -> dict[int, Any]:
        """Return columns of bytes, by field number, of messages that parse.

        Of a list what is not packed is left out.
        """
        if self._handler is None:
            return {}
        columns = decode_messages(self._handler, messages).columns
        return dict(zip(self._numbers, columns, strict=True))


def _is_text(shape: Shape) -> bool:
    """Return whether a field's column is one text a row, so that it may be read as bytes."""
    return shape.scalar == "string" and not shape.repeated


def as_text(array: Any) -> pa.StringArray:
    """Return bytes as text.

    Raises:
        ValueError: some are not UTF-8.
    """
    text: pa.StringArray = array.view(pa.string())
    if not _is_ascii(array):
        try:
            text.validate(full=True)
        except pa.ArrowInvalid as error:
            raise ValueError(f"a text is not UTF-8: {error}") from error
    return text


def as_bytes(array: Any) -> pa.BinaryArray:
    """Return text as bytes."""
    return array.view(pa.binary())  # type: ignore[no-any-return]


def _is_ascii(array: Any) -> bool:
    """Return whether all values are, in one look that costs a tenth of validating each."""
    offsets = offsets_of(array)
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    return not len(data) or int(data.max()) <= _ASCII


def left_out(rows: int, wire: pa.DataType) -> pa.Array[Any]:
    """Return a field that every row leaves out: null, or where it is repeated empty."""
    if pa.types.is_list(wire):
        return list_of(np.zeros(rows), pa.array([], wire.value_type), wire)  # type: ignore[no-any-return]
    nulls: Any = pa.nulls
    return nulls(rows, wire)  # type: ignore[no-any-return]


def _gone_fields(gone: list[Column]) -> list[ProtoField]:
    """Fields of columns that are gone, but for types that no row can carry any more."""
    fields: list[ProtoField] = []
    for column in gone:
        with suppress(UnsupportedType):
            fields += row_fields([column])
    return fields


def _column_type(table: str, column: Column) -> ColumnType:
    try:
        return parse_type(column.type)
    except UnsupportedType as problem:
        raise UnsupportedType(f"column {column.name} of {table}: {problem}") from problem


def _flattened(names: Sequence[str], types: Sequence[ColumnType]) -> list[list[int]]:
    """The indices of the columns of each flattened Nested that has several."""
    groups: dict[str, list[int]] = {}
    for index, (name, type_) in enumerate(zip(names, types, strict=True)):
        if "." in name and type(type_.kind) is Array:
            groups.setdefault(name.split(".", 1)[0], []).append(index)
    return [group for group in groups.values() if len(group) > 1]
