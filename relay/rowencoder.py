"""One row at a time, from a dict to the serialized row message.

Receives column names with Python values, gives the row's bytes, or an error that names
column and value. For programs that write single rows; whole batches go through
relay.columns, and so do here the values that protobuf alone cannot judge.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa

from relay.columns import NOT_CONVERTED, BadValue, convert
from relay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from relay.rowmessage import RowCodec
    from relay.types import ColumnType

_PYTHON: dict[str, tuple[type, ...]] = {
    "int32": (int,),
    "int64": (int,),
    "uint32": (int,),
    "uint64": (int,),
    "float": (int, float),
    "double": (int, float),
    "bool": (bool,),
    "string": (str,),
    "bytes": (bytes,),
}
"""Exact types whose values protobuf takes as they are."""

_BOUNDS = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
}


class RowEncoder:
    """Rows of one table.

    Args:
        codec: of the table.
    """

    def __init__(self, codec: RowCodec) -> None:
        self.codec = codec
        self._fields = {
            name: (field, _value_of(type_))
            for name, field, type_ in zip(
                codec.column_names, codec.field_names, codec.types, strict=True
            )
        }

    def check_names(self, columns: Collection[str]) -> None:
        """Raises ConfigError if there is a column that the table does not have."""
        unknown = [name for name in columns if name not in self._fields]
        if unknown:
            raise unknown_columns(self.codec, unknown)

    def encode(self, row: Mapping[str, object]) -> bytes:
        """The row's bytes; a column left out or None is a field left out.

        Raises:
            ConfigError: a column the table does not have.
            BadValue: a value that does not fit its column.
        """
        fields: dict[str, Any] = {}
        for name, value in row.items():
            if name not in self._fields:
                raise unknown_columns(self.codec, [name])
            if value is not None:
                field, convert_value = self._fields[name]
                try:
                    fields[field] = convert_value(value)
                except _Misfit as misfit:
                    raise BadValue(
                        f"{self.codec.schema.table}, column {name!r}: {misfit}",
                        "mend the value, or change the column's type in ClickHouse",
                    ) from misfit
        try:
            data: bytes = self.codec.message_class(**fields).SerializeToString()
        except ValueError as error:  # text that is no Unicode
            raise BadValue(f"{self.codec.schema.table}: {error}", "mend the value") from error
        return data


def unknown_columns(codec: RowCodec, unknown: list[str]) -> ConfigError:
    """The error for columns that the table does not have."""
    return ConfigError(
        f"{codec.schema.table} has no column {', '.join(map(repr, unknown))} "
        f"(it has {', '.join(codec.column_names)})",
        "mend the name, or add the column in ClickHouse",
    )


class _Misfit(ValueError):
    """A value that does not fit; the text says why."""


def _value_of(type_: ColumnType) -> Callable[[Any], Any]:
    """From a Python value to what the field takes."""
    direct = _PYTHON[type_.proto] if type_.check is None else ()
    bounds = _BOUNDS.get(type_.proto)

    @lru_cache(maxsize=1024)
    def converted(_: str, value: Any) -> Any:  # the type tells 1, 1.0 and True apart
        return _columnar(type_, value)

    def convert_value(value: Any) -> Any:
        if type(value) in direct and (bounds is None or bounds[0] <= value <= bounds[1]):
            return value
        if isinstance(value, UUID):
            value = str(value)
        try:
            return converted(type(value).__name__, value)
        except TypeError as error:  # a list or dict has no hash
            raise _Misfit(type_.complaint(value)) from error

    return convert_value


def _columnar(type_: ColumnType, value: Any) -> Any:
    """The value through the conversion and the checks of whole columns."""
    try:
        array: Any = convert(pa.array([value]), type_)
    except (*NOT_CONVERTED, pa.ArrowTypeError, OverflowError) as error:
        raise _Misfit(f"{type_.complaint(value)}: {error}") from error
    if type_.narrow(array).bad is not None:
        raise _Misfit(type_.complaint(value))
    return array[0].as_py()
