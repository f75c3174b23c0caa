"""Lists, maps and structs of a file or program, as the columns that row messages are made of.

Receives Arrow arrays as a reader chose them and the kind they are meant for; gives wire
arrays. Names of a Tuple's elements and of a Variant's alternatives are those of the `.proto`.
Leaves are relay.produce.leaf_conversion's. Never guesses: what has no place is an
ArrowInvalid, and so is a null where the type has none. Only an element of a Tuple that no row of
the array has is left out.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from relay.produce.leaf_conversion import leaf
from relay.schema.types.kind import Nullable, Scalar, TypeKind
from relay.schema.types.nested import Array, Map, Tuple, Wrapped, list_lengths, list_of, struct_of
from relay.schema.types.variant import NullableTuple, Variant, holds_null

NOT_CONVERTED = (pa.ArrowInvalid, pa.ArrowNotImplementedError)
"""What `to_wire` raises for a value that does not convert."""


def to_wire(array: Any, kind: TypeKind) -> pa.Array[Any]:
    """Return an array, of whatever type its reader chose, in `kind.wire`.

    Ranges narrower than the wire type's are not checked: relay.rows.judgement.narrow does that.

    Raises:
        ArrowInvalid, ArrowNotImplementedError: some value does not convert.
    """
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    match kind:
        case Scalar():
            return leaf(array, kind)
        case Nullable(inner=inner) | NullableTuple(inner=inner):
            return to_wire(array, inner)
        case Wrapped(inner=inner):
            column = to_wire(array, inner)
            single: pa.Array[Any] = struct_of(kind.wire, [column])
            return single
        case Array():
            return _list(array, kind)
        case Tuple() | Variant():
            return _struct(array, kind)
    raise AssertionError(f"no conversion for {kind.text}")


def holds_infinity(array: Any) -> bool:
    """Return whether a float of an array, or of a list or struct in it, is infinite."""
    if pa.types.is_list(array.type):
        return holds_infinity(array.flatten())
    if pa.types.is_struct(array.type):
        return any(map(holds_infinity, array.flatten()))
    return bool(pa.types.is_floating(array.type) and pc.any(pc.is_inf(array)).as_py())


def _list(array: Any, kind: Array) -> pa.Array[Any]:
    if pa.types.is_null(array.type):
        array = array.cast(pa.list_(pa.null()))
    if pa.types.is_map(array.type) and isinstance(kind, Map):
        array = array.cast(
            pa.list_(pa.struct([("key", array.type.key_type), ("value", array.type.item_type)]))
        )
    elif pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    if not pa.types.is_list(array.type):
        raise pa.ArrowInvalid(f"{array.type} is not a list")
    items = array.flatten()
    if items.null_count and not holds_null(kind.items):
        raise pa.ArrowInvalid(f"a null in {kind.text}")
    if isinstance(kind, Map) and pa.types.is_struct(items.type) and items.type.num_fields < 2:
        raise pa.ArrowInvalid(f"an entry of {kind.text} without key or value")
    values = to_wire(items, kind.items)
    lists: pa.Array[Any] = list_of(list_lengths(array), values, kind.wire)
    return lists


def _struct(array: Any, kind: Tuple | Variant) -> pa.Array[Any]:
    if pa.types.is_null(array.type):
        array = array.cast(pa.struct([(name, pa.null()) for name in kind.names]))
    if not pa.types.is_struct(array.type):
        raise pa.ArrowInvalid(f"{array.type} is not a struct")
    given = {field.name: column for field, column in zip(array.type, array.flatten(), strict=True)}
    unknown = sorted(given.keys() - set(kind.names))
    if unknown:
        raise pa.ArrowInvalid(f"no {', '.join(unknown)} in {kind.text}: {', '.join(kind.names)}")
    columns = []
    for name, part in zip(kind.names, kind.parts, strict=True):
        column = given.get(name, pa.nulls(len(array)))
        if name in given and isinstance(kind, Tuple) and not holds_null(part):
            _refuse_nulls(array, column, f"{name} is null, and {part.text} is not Nullable")
        wire: Any = to_wire(column, part)
        if isinstance(part, Wrapped) and isinstance(kind, Variant):
            # Here the message is what says that the alternative is given.
            wire = struct_of(part.wire, wire.flatten(), column.is_null())
        columns.append(wire)
    mask = array.is_null() if array.null_count else None
    struct: pa.Array[Any] = struct_of(kind.wire, columns, mask)
    return struct


def _refuse_nulls(struct: Any, column: Any, reason: str) -> None:
    """Raise ArrowInvalid where the struct is given and this element of it is not."""
    if column.null_count and pc.any(pc.and_(column.is_null(), struct.is_valid())).as_py():
        raise pa.ArrowInvalid(reason)
