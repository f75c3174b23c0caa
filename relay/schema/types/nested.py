"""Types made of types: Array, Map and Tuple, and the messages that stand for them.

Receives the kinds of the parts, gives the kind of the whole: lists and structs of Arrow,
taken apart and put together as whole arrays, however deep. Never a Python object per value.

Protobuf cannot repeat a repeated field nor leave out an element, so where an Array, a Map or
a Nullable stands inside an Array, a Map or a Variant, a message with the one field `value`
stands for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relay.arrow.array_memory import Integers, starts_of
from relay.clickhouse.quoting import literal
from relay.schema.types.kind import Narrowed, TypeKind
from relay.schema.types.proto_shape import ProtoField, ProtoMessage, Shape


def element(kind: TypeKind) -> TypeKind:
    """Return `kind` as it stands in an Array, a Map or a Variant."""
    if not kind.shape.repeated and not kind.optional:
        return kind
    field = ProtoField("value", 1, kind.shape, kind.text)
    wire = pa.struct([_wire_field("value", kind)])
    shape = Shape(message=ProtoMessage((field,)))
    return Wrapped(kind.text, shape, wire, kind.arrow, kind.input_type, kind)


def _wire_field(name: str, kind: TypeKind) -> pa.Field[Any]:
    """Return a field of a struct as rows decode to it: what is repeated is empty, never null."""
    return pa.field(name, kind.wire, nullable=not kind.shape.repeated)


@dataclass(frozen=True)
class Wrapped(TypeKind):
    """A kind inside its message with the one field `value`."""

    inner: TypeKind

    def block(self, array: Any) -> Narrowed:
        """Convert as TypeKind says; the message itself leaves no trace in the block."""
        return self.inner.block(array.flatten()[0])

    def sql(self, value: str, depth: int = 0) -> str:
        """Convert in SQL as TypeKind says."""
        return self.inner.sql(value, depth)

    def why(self, array: Any) -> str:
        """Explain as the inner kind does."""
        return self.inner.why(array.flatten()[0])


@dataclass(frozen=True)
class Array(TypeKind):
    """Array(T), and the entries of a Map."""

    items: TypeKind

    @staticmethod
    def of(text: str, kind: TypeKind) -> Array:
        """Return an array of `kind`; `text` is the whole type's."""
        items = element(kind)
        shape = Shape(items.shape.scalar, items.shape.message, repeated=True)
        return Array(text, shape, _wire_list(items), *_block_list(items), items)

    def block(self, array: Any) -> Narrowed:
        """Convert as TypeKind says; a null is an empty array: there is no Nullable(Array)."""
        inner = self.items.block(array.flatten())
        block = list_of(list_lengths(array), inner.array)
        if inner.bad is None:
            return Narrowed(block, None)
        bad = lists_with(array, inner.bad.to_numpy(zero_copy_only=False))
        return Narrowed(block, pa.array(bad))

    def sql(self, value: str, depth: int = 0) -> str:
        """Convert in SQL as TypeKind says."""
        if self.items.trivial:
            return value
        name = f"e{depth}"
        return f"arrayMap({name} -> {self.items.sql(name, depth + 1)}, {value})"

    def why(self, array: Any) -> str:
        """Return the first bad element, by its place from 1."""
        items = array.flatten()
        bad = self.items.block(items).bad
        at = pc.index(bad, value=True).as_py() if bad is not None else 0
        return f"element {at + 1}: {self.items.why(items.slice(at, 1))}"


@dataclass(frozen=True)
class Map(Array):
    """Map(K, V): entries in the order in which they came, doubles and all, as INSERT does."""

    @staticmethod
    def of_entries(text: str, key: TypeKind, value: TypeKind) -> Map:
        """Return a map; `text` is the whole type's."""
        items = Tuple.of(
            f"Tuple({key.text}, {value.text})", ["key", "value"], [key, element(value)]
        )
        assert items.shape.message is not None
        shape = Shape(message=ProtoMessage(items.shape.message.fields, "entry"), repeated=True)
        return Map(text, shape, _wire_list(items), *_block_list(items), items)

    def sql(self, value: str, depth: int = 0) -> str:
        """Convert in SQL as TypeKind says: an array of pairs casts to a map."""
        return f"CAST({super().sql(value, depth)}, {literal(self.text)})"


@dataclass(frozen=True)
class Tuple(TypeKind):
    """Tuple(T, ...), named or not: a message with a field per element."""

    parts: tuple[TypeKind, ...]
    names: tuple[str, ...]

    @staticmethod
    def of(text: str, names: Sequence[str], parts: Sequence[TypeKind]) -> Tuple:
        """Return a tuple of `parts` under the names `names`; `text` is the whole type's."""
        fields = tuple(
            ProtoField(name, number, part.shape, part.text)
            for number, (name, part) in enumerate(zip(names, parts, strict=True), 1)
        )
        return Tuple(
            text,
            Shape(message=ProtoMessage(fields)),
            wire=pa.struct([_wire_field(n, part) for n, part in zip(names, parts, strict=True)]),
            arrow=pa.struct([pa.field(n, p.arrow) for n, p in zip(names, parts, strict=True)]),
            input_type=f"Tuple({', '.join(part.input_type for part in parts)})",
            parts=tuple(parts),
            names=tuple(names),
        )

    def block(self, array: Any) -> Narrowed:
        """Convert as TypeKind says; left out, it is a tuple of its parts' defaults."""
        columns = zip(self.parts, array.flatten(), strict=True)
        inner = [part.block(column) for part, column in columns]
        block = struct_of(self.arrow, [part.array for part in inner])
        return Narrowed(block, any_bad(part.bad for part in inner))

    def sql(self, value: str, depth: int = 0) -> str:
        """Convert in SQL as TypeKind says."""
        if all(part.trivial for part in self.parts):
            return value
        parts = [
            part.sql(f"tupleElement({value}, {at})", depth) for at, part in enumerate(self.parts, 1)
        ]
        return f"tuple({', '.join(parts)})"

    def why(self, array: Any) -> str:
        """Return the first bad part, by its name."""
        return first_bad(self.names, self.parts, array)


def list_of(lengths: Any, values: Any, type_: Any = None) -> Any:
    """Return a list array without nulls, of so many values each."""
    offsets = pa.array(starts_of(lengths).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, values, type=type_)


def list_lengths(array: Any) -> Any:
    """Return elements of each list, 0 where it is null."""
    return pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)


def lists_with(array: Any, chosen: Any) -> Any:
    """Return which lists have any of the chosen elements."""
    lists = np.zeros(len(array), np.bool_)
    if chosen.any():
        lists[np.repeat(np.arange(len(array)), list_lengths(array))[chosen]] = True
    return lists


def _wire_list(items: TypeKind) -> pa.DataType:
    """As ptars gives a repeated field."""
    return pa.list_(pa.field("item", items.wire, nullable=False))


def _block_list(items: TypeKind) -> tuple[pa.DataType, str]:
    return pa.list_(items.arrow), f"Array({items.input_type})"


def any_bad(masks: Iterable[pa.BooleanArray | None]) -> pa.BooleanArray | None:
    """Return rows that are bad in one of the masks; None: none is."""
    present: list[Any] = [mask for mask in masks if mask is not None]
    return reduce(pc.or_, present) if present else None


def first_bad(names: Sequence[str], parts: Sequence[TypeKind], array: Any) -> str:
    """Return what is wrong with the single value of a struct's wire array, by the part's name."""
    for name, part, column in zip(names, parts, array.flatten(), strict=True):
        if part.block(column).bad is not None:
            return f"{name}: {part.why(column)}"
    return "no part of it is bad"


def struct_of(type_: Any, columns: Sequence[Any], mask: Any = None) -> Any:
    """Return a struct array of these columns, null where the mask is true."""
    return pa.StructArray.from_arrays(list(columns), fields=list(type_), mask=mask)


def align(
    columns: Sequence[pa.Array[Any]], nested: list[list[int]]
) -> tuple[list[pa.Array[Any]], dict[int, Integers]]:
    """Return the columns `n.a`, `n.b` of each flattened Nested with one length in every row.

    An INSERT fills an Array that a row leaves out up to the length of the others; so does this.
    Lengths that differ otherwise would fail the INSERT of the whole block, so their rows are named.

    Of each Nested `nested` has the indices of its columns.

    Returns:
        The columns, and by index the rows in which one has another length.
    """
    aligned, uneven = list(columns), {}
    for group in nested:
        lengths = np.stack([list_lengths(columns[at]) for at in group])
        wanted = lengths.max(axis=0)
        for at, own in zip(group, lengths, strict=True):
            if (own == wanted).all():
                continue
            wrong = np.flatnonzero((own != wanted) & (own != 0))
            if len(wrong):
                uneven[at] = wrong
            aligned[at] = _filled(columns[at], own, np.where(own == 0, wanted, own))
    return aligned, uneven


def _filled(column: Any, own: Integers, wanted: Integers) -> Any:
    """Empty lists made as long as wanted, with elements that are left out."""
    present = np.repeat(own != 0, wanted)
    index = np.cumsum(present) - 1
    items = column.flatten().take(pa.array(index, mask=~present))
    return list_of(wanted, items)
