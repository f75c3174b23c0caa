"""Finds decoded rows that hold more than was decoded; a cheap test comes first.

Receives rows with the columns they decoded to, gives what in them the row message does not
explain (relay.rows.wire_scan). The bytes that the decoded values take are counted by column; a row
never has fewer, so where the sums agree, and no number is wider than its field, nothing is
unexplained. That is the usual case and costs a few percent of decoding.

Lists of numbers count as far as they are packed, and messages as long as they are. What protobuf
itself would make of the decoded values does not do as a measure: a list of one number that is not
packed takes a byte less than that, so that two of them would hide a stranger of two bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relay.arrow.array_memory import bytes_in, offsets_of
from relay.rows.row_codec import MessageParts, RowCodec
from relay.rows.wire_scan import WIDTHS, Unexplained, scan
from relay.schema.dead_reason import DeadKind
from relay.schema.types.nested import list_lengths, lists_with
from relay.schema.types.proto_shape import Shape

_FIXED = {"float": 4, "double": 8, "bool": 1}


def find_unexplained(
    rows: pa.BinaryArray, wire: pa.RecordBatch, codec: RowCodec
) -> list[Unexplained]:
    """Return what the row message does not explain; empty in the usual case.

    The rows are without nulls; `wire` is what `codec.decode_all` made of them.
    """
    if _is_explained(rows, wire.columns, codec.row_parts):
        return []
    again = codec.encode_all(wire)
    differ: Any = pc.not_equal(pc.binary_length(rows), pc.binary_length(again))
    unlike: Any = pc.not_equal(rows, again)
    suspect, unlike = (mask.to_numpy(zero_copy_only=False) for mask in (differ, unlike))
    for column, field in zip(wire.columns, codec.row_fields, strict=True):
        suspect = suspect | _judge_within(_find_too_wide, column, field.shape)
        suspect |= unlike & _judge_within(_find_single, column, field.shape)
    suspects = np.flatnonzero(suspect)
    everything: Any = rows
    odd = everything.take(pa.array(suspects))
    unexplained = scan(odd, codec.row_fields, codec.gone_numbers)
    return [item._replace(rows=suspects[item.rows]) for item in unexplained]


def find_outdated(wire: pa.RecordBatch, codec: RowCodec) -> list[Unexplained]:
    """Return values under a column's number of before its type changed: nothing reads them."""
    outdated = []
    for column, field in zip(wire.columns, codec.row_fields, strict=True):
        old = codec.outdated.get(field.number)
        if old is None:
            continue
        given = list_lengths(column) if field.shape.repeated else column.is_valid()
        rows = np.flatnonzero(given)
        if len(rows):
            reason = (
                f"field {field.number} is column {old.name} as it was when its type was {old.type}"
            )
            kind = DeadKind.OUTDATED_FIELD
            outdated.append(Unexplained(kind, str(field.number), reason, rows))
    return outdated


def passes_over(wire: pa.RecordBatch, codec: RowCodec) -> bool:
    """Return whether a row has a value of a column that is gone: it is known, and not read.

    Costs nothing where no column is gone, and no look at a row where none has such a value.
    """
    live = len(codec.types)
    gone: Any = zip(wire.columns[live:], codec.row_fields[live:], strict=True)
    return any(
        len(column.flatten()) if field.shape.repeated else column.null_count < len(column)
        for column, field in gone
    )


def _is_explained(messages: Any, columns: Sequence[Any], parts: MessageParts) -> bool:
    """Whether the decoded values are all that messages hold, and fit their fields."""
    size, whole = 0, parts.read(messages)
    for column, field in zip(columns, parts.fields, strict=True):
        shape = field.shape
        values = whole.get(field.number, column)
        if shape.repeated and not shape.packable:
            values = values.flatten()
        of_values = _values_size(values, "bytes" if field.number in whole else shape.scalar)
        if of_values is None or (shape.packable and _is_cut(column, shape, values)):
            return False
        tag = 1 + sum(field.number >= 1 << bits for bits in (4, 11, 18, 25))
        size += tag * (len(values) - values.null_count) + of_values
    if size != bytes_in(messages):
        return False
    # None of these fields came twice, which would take more: each of the bytes is a whole value.
    for column, field in zip(columns, parts.fields, strict=True):
        if field.shape.message is None:
            continue
        inner, values = whole[field.number], column
        if field.shape.repeated:
            inner, values = inner.flatten(), values.flatten()
        of_inner = [pc.struct_field(values, part.name) for part in field.shape.message.fields]
        if not _is_explained(inner.fill_null(b""), of_inner, parts.messages[field.number]):
            return False
    return True


def _is_cut(column: Any, shape: Shape, packed: Any) -> bool:
    """Whether lists, of these packed bytes, may hold more than their numbers show."""
    if shape.scalar == "bool":  # which is true, whatever number it was; usually each is a byte
        return bytes_in(packed) != len(column.flatten())
    return bool(_find_too_wide(column, shape).any())


def _judge_within(judge: Callable[[Any, Shape], Any], column: Any, shape: Shape) -> Any:
    """Rows in which a field has what `judge` finds, be it within messages."""
    if shape.message is None:
        return judge(column, shape)
    if shape.repeated:
        inner = _judge_within(judge, column.flatten(), replace(shape, repeated=False))
        return lists_with(column, inner)
    rows = np.zeros(len(column), np.bool_)
    for field in shape.message.fields:
        rows |= _judge_within(judge, pc.struct_field(column, field.name), field.shape)
    return rows


def _find_single(column: Any, shape: Shape) -> Any:
    """Rows with a list of one number, which may take less than protobuf itself needs for it."""
    return list_lengths(column) == 1 if shape.packable else np.zeros(len(column), np.bool_)


def _find_too_wide(column: Any, shape: Shape) -> Any:
    """Rows with a whole number that the field cannot hold."""
    if shape.repeated:
        return lists_with(column, _find_too_wide(column.flatten(), replace(shape, repeated=False)))
    if shape.scalar not in WIDTHS or shape.scalar == "bool" or not len(column):
        return np.zeros(len(column), np.bool_)
    low, high = WIDTHS[shape.scalar]
    values = _whole_numbers(column)
    return (values < low) | (values > high)


def _values_size(column: Any, scalar: str) -> int | None:
    """Bytes of the values without tags; None: one is wider than the scalar."""
    given: int = len(column) - column.null_count
    if not given:
        return 0
    if scalar in _FIXED:
        return given * _FIXED[scalar]
    if scalar in {"string", "bytes"}:
        lengths = np.diff(offsets_of(column))
        return given + bytes_in(column) + _varint_extra(lengths, 0, int(lengths.max()))
    values = _whole_numbers(column)
    least, most = int(values.min()), int(values.max())
    low, high = WIDTHS.get(scalar, (least, most))
    if least < low or most > high:
        return None
    return given + _varint_extra(values, least, most)


def _whole_numbers(column: Any) -> Any:
    """The values, zero where null: it has no byte beyond the first."""
    if not column.null_count:
        return column.to_numpy()
    # A tenth of the time that taking the nulls out costs.
    stored = np.frombuffer(column.buffers()[1], column.type.to_pandas_dtype())
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return np.where(valid, stored[column.offset :][: len(column)], 0)


def _varint_extra(values: Any, least: int, most: int) -> int:
    """Bytes beyond the first of whole numbers as varints; a negative one has ten in all."""
    extra = 0
    if least < 0:
        extra = 9 * int(np.count_nonzero(values < 0))
    for bits in range(7, 64, 7):
        if most < 1 << bits:
            break
        extra += len(values) if least >= 1 << bits else int(np.count_nonzero(values >= 1 << bits))
    return extra
