"""How a value looks in protobuf: scalars, repeated fields, nested messages. Pure data.

relay.schema.types.kind and relay.schema.types.nested give each ClickHouse type its shape;
relay.schema.row_descriptor turns the shapes of a table's columns into descriptors and into the
`.proto` for producers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

MAP_KEYS = frozenset({"int32", "int64", "uint32", "uint64", "bool", "string"})
"""Scalars that protobuf takes as keys of a `map`, of those used here."""
WIDENING = frozenset({("int32", "int64"), ("uint32", "uint64"), ("uint32", "int64")})
"""(written, read): other scalars whose every value reads as the same value, of those used here."""
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Shape:
    """The type of one protobuf field: a scalar or a message, once or repeated."""

    scalar: str = ""
    """Name of the protobuf scalar; empty where the type is `message`."""
    message: ProtoMessage | None = None
    repeated: bool = False

    @property
    def is_map(self) -> bool:
        """Whether `map<key, value>` says it: repeated entries whose key protobuf allows."""
        entry = self.message
        return (
            self.repeated
            and entry is not None
            and entry.form == "entry"
            and entry.fields[0].shape.scalar in MAP_KEYS
        )

    @property
    def packable(self) -> bool:
        """Whether it is a list of numbers: behind one tag and length, or each behind a tag."""
        return self.repeated and self.message is None and self.scalar not in {"string", "bytes"}

    def __str__(self) -> str:
        if self.is_map:
            assert self.message is not None
            key, value = self.message.fields
            return f"map<{key.shape.scalar}, {value.shape}>"
        return f"{'repeated ' if self.repeated else ''}{self.scalar or 'message'}"


@dataclass(frozen=True)
class ProtoField:
    """One field of a nested message."""

    name: str
    number: int
    shape: Shape
    comment: str = ""


@dataclass(frozen=True)
class ProtoMessage:
    """A nested message: plain fields, a single `oneof`, or an entry of a map."""

    fields: tuple[ProtoField, ...]
    form: Literal["plain", "oneof", "entry"] = "plain"


_WIDER = {"int32": "int64", "uint32": "uint64"}


def widened(shape: Shape) -> Shape:
    """Return the shape with whole numbers of 64 bits, of which a decoder cuts nothing."""
    if shape.message is None:
        return replace(shape, scalar=_WIDER.get(shape.scalar, shape.scalar))
    fields = tuple(replace(field, shape=widened(field.shape)) for field in shape.message.fields)
    return replace(shape, message=replace(shape.message, fields=fields))


def field_names(wanted: Iterable[tuple[int, str]]) -> dict[int, str]:
    """Field name of a message by field number, in the order of the numbers given.

    The name itself where protobuf allows it, else with `_` for what it does not allow; made
    unique by the number where two names would clash, also in the JSON and camel-case forms in
    which protoc compares them.
    """
    pairs = list(wanted)
    taken: set[str] = set()
    fields: dict[int, str] = dict.fromkeys((number for number, _ in pairs), "")
    # Plain names first, so that a mangled one never takes the name of a column that has it.
    for number, original in sorted(pairs, key=lambda p: (not is_identifier(p[1]), p[0])):
        name = protobuf_name(original)
        while clash_key(name) in taken or not clash_key(name):
            name = f"{name}_n{number}"
        taken.add(clash_key(name))
        fields[number] = name
    return fields


def is_identifier(name: str) -> bool:
    """Return whether protobuf takes a name as it is."""
    return _IDENTIFIER.fullmatch(name) is not None


def protobuf_name(name: str) -> str:
    """Return a name that protobuf takes: itself, or with `_` for what it does not take."""
    mangled = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return mangled if is_identifier(mangled) else f"f_{mangled}"


def clash_key(name: str) -> str:
    """Return what two names of one message must not share."""
    return name.replace("_", "").lower()
