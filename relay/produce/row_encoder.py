"""Encodes one row at a time, from a dict to the serialized row message.

Receives column names with Python values, gives the row's bytes, or an error that names
column and value. For programs that write single rows; whole batches go through
relay.produce.arrow_columns, and so do here the values that protobuf alone cannot judge.
"""

from __future__ import annotations

import math
import sys
from datetime import date, timedelta
from decimal import Decimal
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import pyarrow as pa
from google.protobuf import message_factory

from relay.errors import ConfigError
from relay.produce.arrow_columns import bad_value
from relay.produce.nested_conversion import NOT_CONVERTED, to_wire
from relay.rows.judgement import LEFT_OUT, UNEVEN
from relay.schema.types.column_type import ColumnType
from relay.schema.types.kind import Nullable, Scalar, TypeKind, value_text
from relay.schema.types.nested import Array, Map, Tuple, Wrapped
from relay.schema.types.ticks import base_type
from relay.schema.types.variant import NullableTuple, Variant, holds_null

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from relay.produce.arrow_columns import BadValue
    from relay.rows.row_codec import RowCodec

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

_SAME = frozenset({bool, bytes, date, int, str})
"""Exact types of which two equal values mean the same. Not so of others: two datetimes are equal
though `fold` says that one is an hour later, or though their zones have other dates, and so are
0.0 and -0.0."""

_PLAIN = frozenset({bool, bytes, dict, float, int, list, str, tuple})
"""Types of values of which none is a null."""
_TIMES = (date, timedelta, np.datetime64, np.timedelta64)
"""Types with a value NaT; pandas' are subclasses of Python's."""

_EXACT = ("Int", "UInt", "Decimal")
"""Types that travel as text and of which a Python int is a value, however long."""
_FLOAT_MOST = math.nextafter(2.0**128 - 2.0**103, 0)
"""What is greater is rounded to infinity in 32 bits."""
_BOUNDS = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
    "float": (-_FLOAT_MOST, _FLOAT_MOST),
    "double": (-sys.float_info.max, sys.float_info.max),
}
_DIGITS_BEYOND = 1_000
"""No type has as many on either side of a decimal's point; an exponent may say billions."""


class RowEncoder:
    """Encodes the rows of one table."""

    def __init__(self, codec: RowCodec) -> None:
        self.codec = codec
        descriptor = codec.message_class.DESCRIPTOR
        self._fields = {
            name: (field, _encoder(type_.kind, descriptor.fields_by_name[field]))
            for name, field, type_ in zip(
                codec.column_names, codec.field_names, codec.types, strict=True
            )
        }

        needed = zip(codec.column_names, codec.needs_value, codec.types, strict=True)
        self._needed = [
            name for name, needs, type_ in needed if needs and not type_.kind.shape.repeated
        ]
        self._nested = [[codec.column_names[at] for at in group] for group in codec.flattened]

    def check_names(self, columns: Collection[str]) -> None:
        """Raise ConfigError if there is a column that the table does not have."""
        unknown = [name for name in columns if name not in self._fields]
        if unknown:
            raise unknown_columns(self.codec, unknown)

    def encode(self, row: Mapping[str, object]) -> bytes:
        """Return the row's bytes; a column left out, None or NaT is a field left out.

        Raises:
            ConfigError: a column the table does not have.
            BadValue: a value that does not fit its column, or none where one is needed.
        """
        fields: dict[str, Any] = {}
        for name, value in row.items():
            if name not in self._fields:
                raise unknown_columns(self.codec, [name])
            if not _is_null(value):
                field, convert_value = self._fields[name]
                try:
                    fields[field] = convert_value(value)
                except _UnfitValue as misfit:
                    raise self._bad_value(name, value, str(misfit)) from misfit
                except UnicodeEncodeError as error:  # half a surrogate pair
                    reason = f"{value_text(value)}: a text is not UTF-8"
                    raise self._bad_value(name, value, reason) from error
                except (OverflowError, TypeError, ValueError) as error:  # Python's own
                    raise self._bad_value(name, value, f"{value_text(value)}: {error}") from error
        for name in self._needed:
            if self._fields[name][0] not in fields:
                raise self._bad_value(name, None, LEFT_OUT)
        for names in self._nested:
            self._check_even(names, fields, row)
        data: bytes = self.codec.message_class(**fields).SerializeToString()
        return data

    def _check_even(
        self, names: list[str], fields: Mapping[str, Any], row: Mapping[str, object]
    ) -> None:
        """Refuse what relay.schema.types.nested.align does: an array left out is filled up."""
        lengths = {name: len(fields.get(self._fields[name][0], ())) for name in names}
        for name, length in lengths.items():
            if length not in {0, max(lengths.values())}:
                raise self._bad_value(name, row[name], UNEVEN)

    def _bad_value(self, name: str, value: object, reason: str) -> BadValue:
        type_ = self.codec.types[self.codec.column_names.index(name)]
        return bad_value(f"{self.codec.schema.table}, column {name!r}", reason, value, type_)


def unknown_columns(codec: RowCodec, unknown: list[str]) -> ConfigError:
    """Return the error for columns that the table does not have."""
    return ConfigError(
        f"{codec.schema.table} has no column {', '.join(map(repr, unknown))} "
        f"(it has {', '.join(codec.column_names)})",
        "correct the name, or add the column in ClickHouse",
    )


class _UnfitValue(ValueError):
    """A value that does not fit; the text says why."""


def _unfit(kind: TypeKind, value: object, why: str = "") -> _UnfitValue:
    return _UnfitValue(f"{value_text(value)} does not fit {kind.text}{why}")


def _encoder(kind: TypeKind, field: Any) -> Callable[[Any], Any]:
    """From a Python value to what the field takes: messages for what is made of others.

    An Array is given as a list, a Map as a dict or a list of entries, a Tuple as a dict or a
    tuple, a Variant as a dict with the one alternative that is meant.
    """
    match kind:
        case Nullable(inner=inner) | NullableTuple(inner=inner):
            return _encoder(inner, field)
        case Scalar():
            return _value_of(ColumnType(kind.text, kind))
        case Map(items=Tuple() as entry):
            return _map_encoder(kind, entry, field)
        case Array(items=items):
            return _array_encoder(kind, items, field)
    return _message_encoder(kind, field)


def _message_encoder(kind: TypeKind, field: Any) -> Callable[[Any], Any]:
    parts, is_variant = _parts(kind), isinstance(kind, Variant)
    fields = field.message_type.fields_by_name
    encoders = {name: _encoder(part, fields[name]) for name, part in parts.items()}
    make = message_factory.GetMessageClass(field.message_type)
    # A Variant's alternative that is null is one that is not given.
    needed = [name for name, part in parts.items() if not (is_variant or holds_null(part))]

    def message(value: Any) -> Any:
        if isinstance(kind, Wrapped):
            value = {"value": value}
        elif isinstance(kind, Tuple) and isinstance(value, tuple):
            value = _by_name(kind, value)
        elif is_variant and _is_null(value):
            value = {}
        elements = _of_type(kind, value, (dict,))
        not_null = {name: part for name, part in elements.items() if not _is_null(part)}
        if any(name in elements and name not in not_null for name in needed):
            raise _unfit(kind, value, ": a null in it")
        if not not_null.keys() <= parts.keys() or (is_variant and len(not_null) > 1):
            raise _unfit(kind, value, f" ({', '.join(parts)})")
        return make(**{name: encoders[name](part) for name, part in not_null.items()})

    return message


def _by_name(kind: Tuple, value: tuple[Any, ...]) -> dict[str, Any]:
    """A tuple's elements; only a dict may leave some out, as it says which."""
    if len(value) != len(kind.names):
        raise _unfit(kind, value, f": {len(value)} elements in place of {len(kind.names)}")
    return dict(zip(kind.names, value, strict=True))


def _parts(kind: TypeKind) -> dict[str, TypeKind]:
    match kind:
        case Wrapped(inner=inner):
            return {"value": inner}
        case Tuple(names=names, parts=parts) | Variant(names=names, parts=parts):
            return dict(zip(names, parts, strict=True))
    raise AssertionError(f"no encoder for {kind.text}")


def _array_encoder(kind: Array, items: TypeKind, field: Any) -> Callable[[Any], Any]:
    encode_item, nullable = _encoder(items, field), holds_null(items)

    def elements(value: Any) -> list[Any]:
        array = _of_type(kind, value, (list, tuple))
        if not nullable and any(map(_is_null, array)):
            raise _unfit(kind, value, ": a null in it")
        return [encode_item(item) for item in array]

    return elements


def _map_encoder(kind: Map, entry: Tuple, field: Any) -> Callable[[Any], Any]:
    encode_entry = _encoder(entry, field)
    by_key = field.message_type.GetOptions().map_entry

    def entries(value: Any) -> Any:
        items = _of_type(kind, value, (dict, list))
        pairs = items.items() if isinstance(items, dict) else [_pair(kind, pair) for pair in items]
        messages = [encode_entry({"key": key, "value": of_key}) for key, of_key in pairs]
        if not by_key:
            return messages
        by_keys = {message.key: message.value for message in messages}
        if len(by_keys) < len(messages):
            raise _unfit(kind, value, ": a key occurs twice")
        return by_keys

    return entries


def _pair(kind: Map, entry: Any) -> Any:
    """Key and value of an entry: a pair, or a dict with just these two, as in JSON."""
    if isinstance(entry, dict) and entry.keys() == {"key", "value"}:
        return entry["key"], entry["value"]
    if isinstance(entry, list | tuple) and len(entry) == 2:
        return entry
    raise _UnfitValue(f"{value_text(entry)} is no entry of {kind.text}, a pair of key and value")


def _of_type(kind: TypeKind, value: Any, types: tuple[type, ...]) -> Any:
    if not isinstance(value, types):
        raise _unfit(kind, value)
    return value


def _is_null(value: Any) -> bool:
    """Whether it is None, or NaT as pandas and numpy have it."""
    if type(value) in _PLAIN:  # most are, and a lookup takes half as long
        return False
    if isinstance(value, _TIMES):
        return bool(value != value)  # noqa: PLR0124 - only NaT is not equal to itself
    return value is None


def _value_of(type_: ColumnType) -> Callable[[Any], Any]:
    """From a Python value to what the field takes."""
    direct = _PYTHON[type_.proto] if type_.check is None else ()
    bounds = _BOUNDS.get(type_.proto)
    is_text = type_.proto in {"string", "bytes"}

    @lru_cache(maxsize=1024)
    def remembered(_: str, value: Any) -> Any:  # the type tells 1 and True apart
        return _through_arrow(type_, value)

    def convert_value(value: Any) -> Any:
        if type(value) in direct and (bounds is None or bounds[0] <= value <= bounds[1]):
            if is_text and isinstance(value, str) and not value.isascii():
                value.encode()  # raises where protobuf would, later
            return value
        if type(value) is float and float in direct and not math.isfinite(value):
            return value  # as it was meant
        value = _as_text(value, type_)
        if type(value) in _SAME:
            return remembered(type(value).__name__, value)
        if isinstance(value, list | dict):
            raise _UnfitValue(type_.complaint(value))
        return _through_arrow(type_, value)

    return convert_value


def _as_text(value: Any, type_: ColumnType) -> Any:
    """The value, as text where Arrow has no type for it or one of fewer digits."""
    if isinstance(value, UUID | IPv4Address | IPv6Address):
        return str(value)
    is_text = type_.proto in {"string", "bytes"}
    if type(value) is int:
        return str(value) if is_text and _is_exact(type_) else value
    # Of a text column a number is no value, in Python as in Arrow's columns.
    if not isinstance(value, Decimal) or (is_text and not _is_exact(type_)):
        return value
    if type_.proto in {"float", "double"}:
        return str(value)
    if abs(value.adjusted()) > _DIGITS_BEYOND:
        raise _UnfitValue(type_.complaint(value))
    return f"{value:f}"  # never with an exponent


def _is_exact(type_: ColumnType) -> bool:
    return base_type(type_.clickhouse).startswith(_EXACT)


def _through_arrow(type_: ColumnType, value: Any) -> Any:
    """The value through the conversion and the checks of whole columns."""
    try:
        array: Any = to_wire(_to_arrow(value), type_.kind)
    except (*NOT_CONVERTED, pa.ArrowTypeError, OverflowError) as error:
        raise _UnfitValue(f"{type_.complaint(value)}: {error}") from error
    if type_.narrow(array).bad is not None:
        raise _UnfitValue(type_.complaint(value))
    return array[0].as_py()


def _to_arrow(value: Any) -> Any:
    """The value in Arrow, which takes pandas' times for Python's, of microseconds, unless told."""
    array: Any = pa.array([value])
    if getattr(value, "nanosecond", 0):
        array = pa.array([value], pa.timestamp("ns", array.type.tz))
    elif getattr(value, "nanoseconds", 0):
        array = pa.array([value], pa.duration("ns"))
    return array
