"""Values put into protobuf messages through protobuf's own reflection, and nothing of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.message import Message


def fill(message: Message, values: dict[Any, Any]) -> Message:
    """`message` with a field set for each value, by the field's name or number: dicts for
    messages, lists for what is repeated, lists of pairs for maps; None is a field left out."""
    descriptor = message.DESCRIPTOR
    for key, value in values.items():
        if value is None:
            continue
        by_number = isinstance(key, int)
        field = (descriptor.fields_by_number if by_number else descriptor.fields_by_name)[key]
        target = getattr(message, field.name)
        if field.message_type is None:
            if field.is_repeated:
                target.extend(value)
            else:
                setattr(message, field.name, value)
        elif field.message_type.GetOptions().map_entry:
            inner = field.message_type.fields_by_number[2]
            for name, held in value:
                if inner.message_type is None:
                    target[name] = held
                else:
                    # Absent from `held` or not, asking for it makes the entry.
                    fill(target[name], held)
        elif field.is_repeated:
            for one in value:
                pair = {1: one[0], 2: one[1]} if isinstance(one, tuple) else one
                fill(target.add(), pair)
        else:
            target.SetInParent()
            fill(target, value)
    return message
