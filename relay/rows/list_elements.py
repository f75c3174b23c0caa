"""What the elements of lists take as columns, counted before their rows are decoded.

Receives the columns of a table; gives, of serialized rows, bytes of the structs in their lists. An
element that sets none of a tuple's hundred fields is two bytes in its message, and takes the room
of all hundred. Elements are counted as rows are: by a decoder that reads each as mere bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from relay.arrow.array_memory import Integers, sums_of
from relay.rows.row_bound import row_bits
from relay.schema.types.kind import Nullable, Scalar, TypeKind
from relay.schema.types.nested import Array, Tuple, Wrapped, list_lengths
from relay.schema.types.proto_shape import ProtoField, ProtoMessage, Shape
from relay.schema.types.variant import NullableTuple, Variant

UNCOUNTED_BITS = 8 * 8 * 2
"""Lists of elements that take no more are not counted: an element is two bytes of its message at
least, and a list of small numbers takes eight times its bytes as well. So Map(String, String), the
usual map, costs no look."""


class CountedField(NamedTuple):
    """A field of the counting decoder's message: its elements or its own fields' are counted."""

    field: ProtoField
    bits: int
    """That each element takes as a column; 0: the field is not repeated."""
    inner: tuple[CountedField, ...]


def counted_fields(columns: Iterable[tuple[int, Shape, TypeKind]]) -> tuple[CountedField, ...]:
    """Return which fields of a message are to be counted, of each one's number, shape and kind."""
    counted = (_count_field(number, shape, kind) for number, shape, kind in columns)
    return tuple(field for field in counted if field is not None)


def value_bits(kind: TypeKind) -> int:
    """Return bits that a value takes as a column, whatever it sets; see row_bits."""
    return max(row_bits(kind.wire), row_bits(kind.arrow) + _default_bits(kind, part=False))


def element_bytes(columns: Iterable[pa.Array[Any]], fields: Iterable[CountedField]) -> Integers:
    """Return bytes that the elements of each row's lists take as columns.

    The columns are of these fields (at least one), as the counting decoder gives them.
    """
    return -(-_of_parts(columns, fields) // 8)


def filled_bytes(
    columns: Sequence[pa.Array[Any]], kinds: Sequence[TypeKind], nested: Iterable[Sequence[int]]
) -> Integers:
    """Return bytes that each row's flattened Nested take by being filled to one length.

    Of each Nested `nested` has the indices of its columns.
    """
    bits: Integers = np.zeros(len(columns[0]), np.int64)
    for group in nested:
        lengths = [list_lengths(columns[at]) for at in group]
        longest = np.max(lengths, axis=0)
        for at, own in zip(group, lengths, strict=True):
            bits += np.where(own == 0, longest * _element_bits(kinds[at]), 0)
    return -(-bits // 8)


def _count_field(number: int, shape: Shape, kind: TypeKind) -> CountedField | None:
    if shape.message is None:
        return None
    kinds = _kinds_within(kind)
    inner = counted_fields(
        (part.number, part.shape, of) for part, of in zip(shape.message.fields, kinds, strict=True)
    )
    bits = _element_bits(kind) if shape.repeated else 0
    if not inner and bits <= UNCOUNTED_BITS:
        return None
    message = ProtoMessage(tuple(part.field for part in inner)) if inner else None
    read = Shape("" if inner else "bytes", message, shape.repeated)
    return CountedField(ProtoField(f"f{number}", number, read), bits, inner)


def _kinds_within(kind: TypeKind) -> tuple[TypeKind, ...]:
    """The kinds of the fields of the message that stands for a kind."""
    match kind:
        case Array():
            return _kinds_within(kind.items)
        case Nullable() | NullableTuple():
            return _kinds_within(kind.inner)
        case Wrapped():
            return (kind.inner,)
        case Tuple() | Variant():
            return kind.parts
        case _:
            return ()


def _default_bits(kind: TypeKind, *, part: bool) -> int:
    """Of the texts that stand for what a tuple leaves out, as of a UUID 36 characters.

    A column left out is null: only as `part` of another value a scalar has its default.
    """
    match kind:
        case Tuple() | Variant():
            return sum(_default_bits(inner, part=True) for inner in kind.parts)
        case NullableTuple():
            return _default_bits(kind.inner, part=True)
        case Scalar(default=str() | bytes()) if part:
            return 8 * len(kind.default)  # type: ignore[arg-type]
        case _:
            return 0


def _element_bits(kind: TypeKind) -> int:
    assert isinstance(kind, Array)  # nothing else is repeated
    return value_bits(kind.items)


def _bits(column: Any, of: CountedField) -> Integers:
    """Bits that the elements in each item of a column take."""
    if not of.bits:
        return _of_parts(column.flatten(), of.inner)
    lengths: Integers = list_lengths(column)
    bits = lengths * of.bits
    if of.inner:
        bits += sums_of(_of_parts(column.flatten().flatten(), of.inner), lengths)
    return bits


def _of_parts(columns: Iterable[pa.Array[Any]], fields: Iterable[CountedField]) -> Integers:
    parts = [_bits(column, field) for column, field in zip(columns, fields, strict=True)]
    return np.sum(parts, axis=0, dtype=np.int64)  # type: ignore[no-any-return]
