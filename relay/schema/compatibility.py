"""Checks whether a producer's `.proto` can still be read, against the table's row message.

Receives the descriptors of both row messages and the numbers of columns that are gone, gives
every difference: a problem where a value would not arrive as it was meant, else a note. Pure.
"""

# pure

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from relay.schema.types.proto_shape import WIDENING

_NAMES = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in vars(FieldDescriptor).items()
    if name.startswith("TYPE_")
}
_WIDENING = {
    *WIDENING,
    *((narrow, wide) for narrow in ("bool", "enum") for wide in ("int32", "int64")),
    ("bool", "uint32"),
    ("bool", "uint64"),
    ("string", "bytes"),
}
"""(written, read): other types whose every value reads as the same value."""
_DEEPEST = 20  # messages in messages; a type that holds itself would have no end


@dataclass(frozen=True, slots=True)
class CompatibilityFinding:
    """One difference; a `problem` stands in the way.

    Attributes:
        kind: "unknown", "reserved", "type", "repeated", "name", "missing", "presence".
        field: its path in the producer's message, or in the table's where it is missing.
    """

    problem: bool
    kind: str
    field: str
    number: int
    what: str


def findings(
    written: Descriptor, read: Descriptor, gone: Mapping[int, str], needed: Mapping[int, str]
) -> list[CompatibilityFinding]:
    """Return all differences that matter to the producer, problems and notes, by field number.

    Args:
        written: the producer's row message.
        read: the table's, as it is now.
        gone: by number, what had the fields of columns dropped or changed since.
        needed: by number, the columns whose value nothing can stand for.
    """
    differences = list(_compare_messages(written, read, "", gone, 0))
    numbers = {field.number for field in written.fields}
    for number, column in needed.items():
        if number not in numbers:
            what = f"column {column} needs a value, and the producer has no field {number}"
            differences.append(CompatibilityFinding(True, "missing", column, number, what))
    return differences


def _compare_messages(
    written: Descriptor, read: Descriptor, path: str, gone: Mapping[int, str], depth: int
) -> Iterator[CompatibilityFinding]:
    for field in sorted(written.fields, key=lambda field: field.number):
        name = f"{path}{field.name}"
        ours = read.fields_by_number.get(field.number)
        if ours is not None:
            yield from _compare_fields(field, ours, name, read)
            if field.message_type and ours.message_type and depth < _DEEPEST:
                inner = (field.message_type, ours.message_type, f"{name}.")
                yield from _compare_messages(*inner, {}, depth + 1)
        elif field.number in gone:
            what = f"field {field.number} is reserved: it was {gone[field.number]}"
            yield CompatibilityFinding(True, "reserved", name, field.number, what)
        else:
            what = f"the table does not know field {field.number}: its values would be lost"
            yield CompatibilityFinding(True, "unknown", name, field.number, what)


def _compare_fields(
    field: FieldDescriptor, ours: FieldDescriptor, name: str, read: Descriptor
) -> Iterator[CompatibilityFinding]:
    """Two fields of one number."""
    number = field.number
    written, wanted = _NAMES[field.type], _NAMES[ours.type]
    if written != wanted and (written, wanted) not in _WIDENING:
        what = f"field {number} is {written} here and {wanted} in the table ({ours.name})"
        yield CompatibilityFinding(True, "type", name, number, what)
    elif field.is_repeated != ours.is_repeated:
        words = {True: "repeated", False: "single"}
        what = (
            f"field {number} is {words[field.is_repeated]} here and {words[ours.is_repeated]} "
            f"in the table ({ours.name})"
        )
        yield CompatibilityFinding(True, "repeated", name, number, what)
    if field.name != ours.name:
        other = read.fields_by_name.get(field.name)
        if other is not None:
            what = (
                f"field {number} is {ours.name} in the table, where {field.name} is field "
                f"{other.number}"
            )
            yield CompatibilityFinding(True, "name", name, number, what)
        else:
            what = f"field {number} is called {ours.name} in the table; names are not sent"
            yield CompatibilityFinding(False, "name", name, number, what)
    if ours.has_presence and not field.has_presence and not field.is_repeated:
        what = (
            f"field {number} is not `optional` here: zero and empty are left out, and become "
            "NULL or the column's DEFAULT"
        )
        yield CompatibilityFinding(False, "presence", name, number, what)
