"""Parses the text of a ClickHouse type: name and arguments, quotes respected.

Receives what system.columns prints, gives name and top-level arguments as text, and a type with
text for its Enums; never judges whether a type is supported.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_QUOTED = re.compile(r"'((?:[^'\\]|\\.|'')*)'", re.DOTALL)
_BACKTICKED = re.compile(r"`((?:[^`\\]|\\.|``)*)`", re.DOTALL)
_ENUM_VALUE = re.compile(rf"{_QUOTED.pattern}\s*(?:=\s*(-?\d+))?", re.DOTALL)
_NAMED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\s+(\S.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\x([0-9A-Fa-f]{2})|\\(.)|(''|``)", re.DOTALL)
_CONTROL = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "0": "\0", "a": "\a", "v": "\v"}
_ENUMS = ("Enum8", "Enum16")
_AROUND = ("Nullable", "LowCardinality")
_OF_PARTS = ("Array", "Map", "Tuple", "Nested")


@dataclass(frozen=True)
class TypeText:
    """`name(arguments...)`, arguments unparsed and stripped."""

    name: str
    arguments: tuple[str, ...]

    def expect(self, *counts: int) -> tuple[str, ...]:
        """Return the arguments, if their number is one of `counts`.

        Raises:
            ValueError: it is not.
        """
        if len(self.arguments) not in counts:
            raise ValueError(f"{self.name} with {len(self.arguments)} arguments")
        return self.arguments


def parse_text(text: str) -> TypeText:
    """Name and top-level arguments of a type.

    Raises:
        ValueError: not of the form `Name` or `Name(...)`.
    """
    text = text.strip()
    name = _NAME.match(text)
    if name is None:
        raise ValueError(f"no type name in {text!r}")
    rest = text[name.end() :].strip()
    if not rest:
        return TypeText(name[0], ())
    if not (rest.startswith("(") and rest.endswith(")")):
        raise ValueError(f"cannot read {text!r}")
    return TypeText(name[0], tuple(_split(rest[1:-1])))


def _split(text: str) -> list[str]:
    """Parts between the commas that stand outside of quotes and brackets."""
    parts, depth, start, at = [], 0, 0, 0
    while at < len(text):
        quoted = _QUOTED.match(text, at) or _BACKTICKED.match(text, at)
        if quoted is not None:
            at = quoted.end()
            continue
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if text[at] == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
        at += 1
    if depth != 0:
        raise ValueError(f"brackets do not match in {text!r}")
    parts.append(text[start:].strip())
    return parts


def enum_numbers(parsed: TypeText) -> dict[str, int]:
    """Return the numbers of an Enum8 or Enum16 by their names, unescaped, in its order.

    Raises:
        ValueError: an argument is not `'name' = number`.
    """
    numbers = {}
    for place, argument in enumerate(parsed.arguments, 1):
        value = _ENUM_VALUE.fullmatch(argument)
        if value is None:
            raise ValueError(f"cannot read the enum value {argument!r}")
        name = _ESCAPE.sub(_unescape, value[1])
        numbers[name] = place if value[2] is None else int(value[2])
    return numbers


def named(argument: str) -> tuple[str, str]:
    """Name and type of an element of a Tuple or Nested; the name is empty where there is none."""
    quoted = _BACKTICKED.match(argument)
    if quoted is not None:
        return _ESCAPE.sub(_unescape, quoted[1]), argument[quoted.end() :].strip()
    plain = _NAMED.fullmatch(argument)
    return (plain[1], plain[2]) if plain is not None else ("", argument)


def texts_for_enums(text: str, other: str) -> str:
    """Return a type with String in place of each Enum whose place in the other type has one, too.

    Nullable and LowCardinality make no difference. Elements of tuples are found by name where all
    have one, as ClickHouse's CAST finds them.

    Raises:
        ValueError: as `parse_text`.
    """
    own, its = parse_text(text), parse_text(other)
    if own.name in _AROUND:
        return f"{own.name}({texts_for_enums(own.expect(1)[0], other)})"
    if its.name in _AROUND:
        return texts_for_enums(text, its.expect(1)[0])
    if own.name in _ENUMS and its.name in _ENUMS:
        return "String"
    if own.name != its.name or own.name not in _OF_PARTS:
        return text
    parts = [
        part.removesuffix(named(part)[1]) + texts_for_enums(named(part)[1], place)
        for part, place in zip(own.arguments, _places(own.arguments, its.arguments), strict=True)
    ]
    return f"{own.name}({', '.join(parts)})"


def _places(parts: Sequence[str], others: Sequence[str]) -> list[str]:
    """The type of each part's place among the others; one without a place keeps its own."""
    pairs, places = [named(part) for part in parts], [named(other) for other in others]
    if all(name for name, _ in (*pairs, *places)):
        types = dict(places)
        return [types.get(name, "Nothing") for name, _ in pairs]
    types_in_order = [type_ for _, type_ in places]
    return [*types_in_order, *["Nothing"] * len(pairs)][: len(pairs)]


def _unescape(escape: re.Match[str]) -> str:
    if escape[1] is not None:
        return chr(int(escape[1], 16))
    if escape[2] is not None:
        return _CONTROL.get(escape[2], escape[2])
    return escape[3][0]
