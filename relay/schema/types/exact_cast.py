"""Arrow's cast, with the values for which it loses something without a word; pure.

Arrow checks neither whether a number that becomes a float becomes infinite, nor whether one that
becomes true is 1; of a small decimal number it writes a text with an exponent. It casts a struct to
another by name, fills the parts that are missing with nulls and drops those that are too many.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Array: TypeAlias = Any
"""An Arrow array: its type stubs know too little of what a cast gives."""
_TEXTS = (
    pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view,
    pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary,
)  # fmt: skip
_LISTS = (
    pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list,
    pa.types.is_list_view, pa.types.is_large_list_view, pa.types.is_map,
)  # fmt: skip
_INFINITY = r"^[+-]?inf(inity)?$"
DIGITS_MOST = 76
"""Of a Decimal, in ClickHouse and in Arrow."""


def decoded_type(type_: pa.DataType) -> pa.DataType:
    """Return the type of the values themselves, without an encoding around them."""
    while True:
        if isinstance(type_, pa.DictionaryType | pa.RunEndEncodedType):
            type_ = type_.value_type
        elif isinstance(type_, pa.BaseExtensionType):
            type_ = type_.storage_type
        else:
            return type_


def pairs(given: pa.DataType, wanted: pa.DataType) -> Iterator[tuple[pa.DataType, pa.DataType]]:
    """Yield the types of the parts that two types have both: of structs by name, else by place."""
    given, wanted = decoded_type(given), decoded_type(wanted)
    if isinstance(given, pa.StructType) and isinstance(wanted, pa.StructType):
        named = {field.name: field.type for field in given}
        yield from ((named[field.name], field.type) for field in wanted if field.name in named)
    elif given.num_fields == wanted.num_fields:
        yield from ((given.field(at).type, wanted.field(at).type) for at in range(given.num_fields))


def other_parts(given: pa.DataType, wanted: pa.DataType, *, missing_as_null: bool = False) -> str:
    """Return how the parts of a struct, at any depth, differ from those wanted; empty: not at all.

    Their order does not matter. With `missing_as_null`, parts that are not given are right.
    """
    given, wanted = decoded_type(given), decoded_type(wanted)
    if isinstance(given, pa.StructType) and isinstance(wanted, pa.StructType):
        there, needed = ([field.name for field in struct] for struct in (given, wanted))
        differ = set(there) - set(needed) if missing_as_null else sorted(there) != sorted(needed)
        if differ:
            return f"a struct has the parts {_listed(there)}, and needs {_listed(needed)}"
    inner = (other_parts(*pair, missing_as_null=missing_as_null) for pair in pairs(given, wanted))
    return next(filter(None, inner), "")


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "(none)"


def exact_cast(array: Array, wanted: pa.DataType) -> Array:
    """Return an array in another type; of numbers only a float's digits are rounded.

    Parts of structs are paired by name; one that is not given is null.

    Raises:
        ArrowException: some value, or part of one, does not convert.
    """
    if (decoded := decoded_type(array.type)) != array.type:
        array = array.cast(decoded)
    if array.type.equals(wanted):
        return array
    if isinstance(wanted, pa.StructType) and isinstance(array.type, pa.StructType):
        return _struct(array, wanted)
    if pa.types.is_list(wanted) and _is_list(array.type):
        return _list(array, wanted)
    if isinstance(wanted, pa.MapType) and _is_list(array.type):
        return _map(array, wanted)
    return _leaf(array, wanted)


def _struct(array: Array, wanted: pa.StructType) -> Array:
    names = [field.name for field in array.type]
    given = dict(zip(names, array.flatten(), strict=True))
    columns = [
        exact_cast(given.get(field.name, pa.nulls(len(array))), field.type) for field in wanted
    ]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(columns, fields=list(wanted), mask=mask)


def _list(array: Array, wanted: Any) -> Array:
    if isinstance(array.type, pa.MapType):
        entry = pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])
        array = array.cast(pa.list_(entry))
    lengths: Array = pc.list_value_length(array)
    filled = lengths.fill_null(0).to_numpy(zero_copy_only=False)
    offsets: Array = pa.array(np.concatenate([[0], np.cumsum(filled, dtype=np.int64)]))
    return pa.ListArray.from_arrays(
        offsets.cast(pa.int32()),
        exact_cast(array.flatten(), wanted.value_type),
        type=wanted,
        mask=array.is_null() if array.null_count else None,
    )


def _map(array: Array, wanted: pa.MapType[Any, Any, Any]) -> Array:
    entry = pa.struct([("key", wanted.key_type), ("value", wanted.item_type)])
    lists = _list(array, pa.list_(entry))
    maps: Any = pa.MapArray  # whose stubs know no type beside keys and values
    mask = lists.is_null() if lists.null_count else None
    return maps.from_arrays(lists.offsets, *lists.values.flatten(), type=wanted, mask=mask)


def _leaf(array: Array, wanted: pa.DataType) -> Array:
    if pa.types.is_boolean(wanted) and not is_text(array.type):
        refuse_other_than_0_and_1(array)
    if pa.types.is_decimal(array.type) and pa.types.is_string(wanted):
        array = decimal_texts(array)
    converted = pc.cast(array, wanted)
    if pa.types.is_floating(wanted):
        refuse_infinity(array, converted)
    return converted


def refuse_infinity(given: Array, numbers: Array) -> None:
    """Raise ArrowInvalid where a float is infinite and what was given for it is not."""
    infinite = pc.is_inf(numbers)
    if not pc.any(infinite).as_py():
        return
    meant: Any = pa.scalar(value=False)
    if is_text(given.type):
        meant = pc.match_substring_regex(as_strings(given), _INFINITY, ignore_case=True)
    elif pa.types.is_floating(given.type):
        meant = infinite if pa.types.is_float16(given.type) else pc.is_inf(given)
    if pc.any(pc.and_not(infinite, meant)).as_py():
        raise pa.ArrowInvalid("the number is too large, and would be infinite")


def refuse_other_than_0_and_1(array: Array) -> None:
    """Raise ArrowInvalid where a number stands neither for false nor for true."""
    known = pc.is_in(array.cast(pa.int64()), value_set=pa.array([0, 1, None], pa.int64()))
    if pc.any(pc.invert(known)).as_py():
        raise pa.ArrowInvalid("neither 0 nor 1")


def decimal_texts(array: Array) -> Array:
    """Return decimal numbers as text, with every digit of their scale and without an exponent."""
    scale = array.type.scale
    wide = array.cast(pa.decimal256(DIGITS_MOST, scale))
    # The same number without its point: Arrow writes small ones with an exponent.
    units: Array = pa.Array.from_buffers(
        pa.decimal256(DIGITS_MOST, 0), len(wide), wide.buffers(), -1, wide.offset
    )
    text = units.cast(pa.string())
    if scale <= 0:
        return pc.binary_join_element_wise(text, "0" * -scale, "")
    digits: Array = pc.utf8_lpad(pc.utf8_ltrim(text, "-"), scale + 1, "0")
    sign: Array = pc.if_else(pc.starts_with(text, "-"), "-", "")
    whole = pc.utf8_slice_codeunits(digits, 0, -scale)
    fraction = pc.utf8_slice_codeunits(digits, -scale)
    return pc.binary_join_element_wise(sign, whole, ".", fraction, "")


def as_strings(array: Array) -> Array:
    """Return texts of whatever Arrow type as its strings, also those that are not UTF-8.

    Other arrays are returned as they are.
    """
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.binary())
    if is_text(array.type):
        array = array.cast(options=pc.CastOptions(pa.string(), allow_invalid_utf8=True))
    return array


def is_text(type_: pa.DataType) -> bool:
    """Return whether values are strings or bytes."""
    return any(is_one(type_) for is_one in _TEXTS)


def _is_list(type_: pa.DataType) -> bool:
    return any(is_one(type_) for is_one in _LISTS)
