"""Arrow's cast, with the values for which it loses something without a word; pure.

Arrow checks neither whether a number that becomes a float becomes infinite, nor whether one that
becomes true is 1; of a small decimal number it writes a text with an exponent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relay.schema.types.arrow_parts import decoded_type

if TYPE_CHECKING:
    Array = pa.Array[Any]

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


def exact_cast(array: Any, wanted: pa.DataType) -> Array:
    """Return an array in another type; of numbers only a float's digits are rounded.

    Parts of structs are paired by name; one that is not given is null.

    Raises:
        ArrowException: some value, or part of one, does not convert.
    """
    if (decoded := decoded_type(array.type)) != array.type:
        array = array.cast(decoded)
    if array.type.equals(wanted):
        found: Array = array
    elif isinstance(wanted, pa.StructType) and isinstance(array.type, pa.StructType):
        found = _struct(array, wanted)
    elif pa.types.is_list(wanted) and _is_list(array.type):
        found = _list(array, wanted)
    elif isinstance(wanted, pa.MapType) and _is_list(array.type):
        found = _map(array, wanted)
    else:
        found = _leaf(array, wanted)
    return found


def _struct(array: Any, wanted: pa.StructType) -> Array:
    names = [field.name for field in array.type]
    given = dict(zip(names, array.flatten(), strict=True))
    columns = [
        exact_cast(given.get(field.name, pa.nulls(len(array))), field.type) for field in wanted
    ]
    mask = array.is_null() if array.null_count else None
    struct: Array = pa.StructArray.from_arrays(columns, fields=list(wanted), mask=mask)
    return struct


def _list(array: Any, wanted: Any) -> Array:
    if isinstance(array.type, pa.MapType):
        entry = pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])
        array = array.cast(pa.list_(entry))
    lengths: Any = pc.list_value_length(array)
    filled = lengths.fill_null(0).to_numpy(zero_copy_only=False)
    offsets: Any = pa.array(np.concatenate([[0], np.cumsum(filled, dtype=np.int64)]))
    lists: Array = pa.ListArray.from_arrays(
        offsets.cast(pa.int32()),
        exact_cast(array.flatten(), wanted.value_type),
        type=wanted,
        mask=array.is_null() if array.null_count else None,
    )
    return lists


def _map(array: Any, wanted: pa.MapType[Any, Any, Any]) -> Array:
    entry = pa.struct([("key", wanted.key_type), ("value", wanted.item_type)])
    lists: Any = _list(array, pa.list_(entry))
    maps: Any = pa.MapArray  # whose stubs know no type beside keys and values
    found: Array = maps.from_arrays(
        lists.offsets,
        *lists.values.flatten(),
        type=wanted,
        mask=lists.is_null() if lists.null_count else None,
    )
    return found


def _leaf(array: Any, wanted: pa.DataType) -> Array:
    if pa.types.is_boolean(wanted) and not is_text(array.type):
        refuse_other_than_0_and_1(array)
    if pa.types.is_decimal(array.type) and pa.types.is_string(wanted):
        array = decimal_texts(array)
    found: Array = pc.cast(array, wanted)
    if pa.types.is_floating(wanted):
        refuse_infinity(array, found)
    return found


def refuse_infinity(given: Any, numbers: Any) -> None:
    """Raise ArrowInvalid where a float is infinite and what was given for it is not."""
    infinite: Any = pc.is_inf(numbers)
    if not pc.any(infinite).as_py():
        return
    meant: Any = pa.scalar(value=False)
    if is_text(given.type):
        meant = pc.match_substring_regex(as_strings(given), _INFINITY, ignore_case=True)
    elif pa.types.is_floating(given.type):
        meant = infinite if pa.types.is_float16(given.type) else pc.is_inf(given)
    if pc.any(pc.and_not(infinite, meant)).as_py():
        raise pa.ArrowInvalid("the number is too large, and would be infinite")


def refuse_other_than_0_and_1(array: Any) -> None:
    """Raise ArrowInvalid where a number stands neither for false nor for true."""
    numbers: Any = array.cast(pa.int64())
    known: Any = pc.is_in(numbers, value_set=pa.array([0, 1, None], pa.int64()))
    if pc.any(pc.invert(known)).as_py():
        raise pa.ArrowInvalid("neither 0 nor 1")


def decimal_texts(array: Any) -> Array:
    """Return decimal numbers as text, with every digit of their scale and without an exponent."""
    scale = array.type.scale
    wide = array.cast(pa.decimal256(DIGITS_MOST, scale))
    # The same number without its point: Arrow writes small ones with an exponent.
    units: Any = pa.Array.from_buffers(
        pa.decimal256(DIGITS_MOST, 0), len(wide), wide.buffers(), -1, wide.offset
    )
    text: Any = units.cast(pa.string())
    if scale <= 0:
        whole: Array = pc.binary_join_element_wise(text, "0" * -scale, "")
        return whole
    digits: Any = pc.utf8_lpad(pc.utf8_ltrim(text, "-"), scale + 1, "0")
    sign: Any = pc.if_else(pc.starts_with(text, "-"), "-", "")
    parts = [
        sign,
        pc.utf8_slice_codeunits(digits, 0, -scale),
        ".",
        pc.utf8_slice_codeunits(digits, -scale),
    ]
    joined: Array = pc.binary_join_element_wise(*parts, "")
    return joined


def as_strings(array: Any) -> Array:
    """Return texts of whatever Arrow type as its strings, also those that are not UTF-8.

    Other arrays are returned as they are.
    """
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.binary())
    found: Array = array
    if is_text(array.type):
        found = array.cast(options=pc.CastOptions(pa.string(), allow_invalid_utf8=True))
    return found


def is_text(type_: pa.DataType) -> bool:
    """Return whether values are strings or bytes."""
    return any(is_one(type_) for is_one in _TEXTS)


def _is_list(type_: pa.DataType) -> bool:
    return any(is_one(type_) for is_one in _LISTS)
