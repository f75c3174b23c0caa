"""Parts of Arrow's types by their names, as its cast pairs them; pure.

Arrow casts a struct to another by name, fills the parts that are missing with nulls and drops those
that are too many, without a word.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa


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
        there, needed = ([field.name for field in one] for one in (given, wanted))
        differ = set(there) - set(needed) if missing_as_null else sorted(there) != sorted(needed)
        if differ:
            return f"a struct has the parts {_listed(there)}, and needs {_listed(needed)}"
    found = (other_parts(*pair, missing_as_null=missing_as_null) for pair in pairs(given, wanted))
    return next((one for one in found if one), "")


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "(none)"
