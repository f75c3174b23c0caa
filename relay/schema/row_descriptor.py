"""A row message as protobuf sees it: its descriptor, and its text for producers.

Receives the fields of a row message with their shapes, gives its descriptor, for protobuf itself
or for the codec, and the lines of the `.proto`. Both come from the same
shapes and the same names. Never looks at values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor

from relay.schema.types.proto_shape import ProtoField, ProtoMessage, Shape

PACKAGE = "relay.rows"
ROW = "Row"
_FIELD = descriptor_pb2.FieldDescriptorProto


def row_descriptor(fields: Sequence[ProtoField], *, for_codec: bool) -> Descriptor:
    """Return the row message `relay.rows.Row`, in a descriptor pool of its own.

    Args:
        fields: of the row message.
        for_codec: maps as repeated entries and every alternative of a oneof as a field of its
            own. The bytes are the same, but nothing in them is merged or overridden unseen.
    """
    file = descriptor_pb2.FileDescriptorProto(
        name="relay/rows.proto", package=PACKAGE, syntax="proto3"
    )
    row = ProtoMessage(tuple(fields))
    _fill(file.message_type.add(name=ROW), row, (ROW,), for_codec=for_codec)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool.FindMessageTypeByName(f"{PACKAGE}.{ROW}")


def _fill(
    into: descriptor_pb2.DescriptorProto,
    message: ProtoMessage,
    around: tuple[str, ...],
    *,
    for_codec: bool,
) -> None:
    """`around`: names of the messages around, that of `into` included."""
    if message.form == "oneof" and not for_codec:
        into.oneof_decl.add(name="alternative")
    names = message_names(message, around)
    for field in message.fields:
        shape = field.shape
        entry = into.field.add(name=field.name, number=field.number)
        entry.label = _FIELD.LABEL_REPEATED if shape.repeated else _FIELD.LABEL_OPTIONAL
        if shape.message is None:
            entry.type = _FIELD.Type.Value(f"TYPE_{shape.scalar.upper()}")
        else:
            entry.type = _FIELD.TYPE_MESSAGE
            inner = into.nested_type.add(name=names[field.number])
            if not for_codec and is_map(message, field):
                inner.name = _entry_name(field)
                inner.options.map_entry = True
            path = (*around, inner.name)
            entry.type_name = f".{PACKAGE}.{'.'.join(path)}"
            _fill(inner, shape.message, path, for_codec=for_codec)
        if message.form == "oneof" and not for_codec:
            entry.oneof_index = 0
        elif not shape.repeated and not into.options.map_entry:
            # proto3 keeps explicit presence as a oneof of its own, which nobody can name.
            entry.proto3_optional = True
            entry.oneof_index = len(into.oneof_decl)
            into.oneof_decl.add(name=f"_{field.number}_presence")


def is_map(message: ProtoMessage, field: ProtoField) -> bool:
    """Return whether `map<key, value>` can say it, also beside the other fields of its message."""
    return field.shape.is_map and all(_entry_name(field) != other.name for other in message.fields)


def _entry_name(field: ProtoField) -> str:
    """As protobuf itself calls the entries of a map."""
    return f"{_camel(field.name)}Entry"


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def message_names(message: ProtoMessage, around: Sequence[str]) -> dict[int, str]:
    """Return names of the messages in a message, by number of the field that needs one.

    None is called as a field beside it, nor, which Java refuses, as a message around it. Of a
    map it is the values' name.

    Args:
        message: whose fields they are for.
        around: names of the messages around these, that of `message` included.
    """
    taken = {*around, *(field.name for field in message.fields)}
    unique_names: dict[int, str] = {}
    for field in message.fields:
        name = "Item" if field.name == "value" else f"{_camel(field.name)}Value"
        unique, times = name, 1
        while unique in taken:
            times += 1
            unique = f"{name}{times}"
        unique_names[field.number] = unique
        taken.add(unique)
    return unique_names


def message_lines(
    message: ProtoMessage, around: tuple[str, ...] = (ROW,), extra: Sequence[str] = ()
) -> Iterator[str]:
    """Yield a message and the messages in it, as lines of a `.proto`.

    Args:
        message: to print.
        around: names of the messages around it, and its own.
        extra: lines at its beginning, as `reserved ...;`.
    """
    indent = "  " * (len(around) - 1)
    yield f"{indent}message {around[-1]} {{"
    within = f"{indent}  "
    yield from (f"{within}{line}" for line in extra)
    names = message_names(message, around)
    for field in message.fields:
        held = _value_shape(message, field)
        if held.message is not None:
            yield from message_lines(held.message, (*around, names[field.number]))
    before, after, step = [], [], ""
    if message.form == "oneof":
        before, after, step = [f"{within}oneof alternative {{"], [f"{within}}}"], "  "
    yield from before
    for field in message.fields:
        comment = f"  // {field.comment}" if field.comment else ""
        declared = _declaration(message, field, names[field.number])
        yield f"{within}{step}{declared};{comment}".replace("\n", " ")
    yield from after
    yield f"{indent}}}"


def _value_shape(message: ProtoMessage, field: ProtoField) -> Shape:
    """What a field holds: of a map the values, else the field itself."""
    if is_map(message, field):
        assert field.shape.message is not None
        return field.shape.message.fields[1].shape
    return field.shape


def _declaration(message: ProtoMessage, field: ProtoField, name: str) -> str:
    """A field without the semicolon behind it; `name` is its message's."""
    held = _value_shape(message, field)
    kind = held.scalar or name
    if is_map(message, field):
        assert field.shape.message is not None
        kind = f"map<{field.shape.message.fields[0].shape.scalar}, {kind}>"
        label = ""
    else:
        label = "repeated " if held.repeated else "" if message.form == "oneof" else "optional "
    return f"{label}{kind} {field.name} = {field.number}"
