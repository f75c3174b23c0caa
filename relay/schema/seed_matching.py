"""Decides which column of a table each field of a producer's row message is; pure.

Receives the fields' names by number, what the file says beside them, and the columns; gives the
column of each field, or raises. protobuf takes few names, so columns such as `a-b` and `a_b`, or
all of three letters that it does not know, share one name but for a number: taken for each other,
two of one type would swap their values, and nothing would notice.
"""

# pure

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from itertools import product

from relay.errors import ConfigError
from relay.schema.types.proto_shape import field_names, is_identifier, protobuf_name

_SAID = re.compile(r"""\s*column ('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
"""As `relay schema proto` writes behind a field that is not called as its column."""


def match_columns(
    fields: Mapping[int, str], comments: Mapping[int, str], columns: Collection[str], what: str
) -> dict[int, str]:
    """Return the column of each field that has one, by the field's number.

    Args:
        fields: names by number.
        comments: behind the fields, by number; where one names the column, it is that.
        columns: of the table.
        what: names message and table in errors.

    Raises:
        ConfigError: a field may be one column or another, or it is called as no column would be.
    """
    columns_of: dict[int, str] = {}
    possible: dict[int, list[str]] = {}
    for number, name in fields.items():
        stems = _stems(name, number)
        called = [one for one in columns if one == name or protobuf_name(one) in stems]
        said = _column_named(comments.get(number, ""))
        if said is None or protobuf_name(said) not in stems:
            possible[number] = called
        elif said in called:
            _refuse_second(said, columns_of, number, what)
            columns_of[number] = said
    taken = set(columns_of.values())
    open_ = {n: [c for c in some if c not in taken] for n, some in possible.items()}
    for group in _groups({number: some for number, some in open_.items() if some}):
        columns_of |= _decide(fields, group, what)
    return columns_of


def _refuse_second(column: str, columns_of: Mapping[int, str], number: int, what: str) -> None:
    before = [n for n, name in columns_of.items() if name == column]
    if before:
        raise ConfigError(
            f"{what}: fields {before[0]} and {number} both say that they are column {column!r}",
            "correct the comment behind one of them",
        )


def _column_named(comment: str) -> str | None:
    match = _SAID.match(comment)
    return None if match is None else str(ast.literal_eval(match[1]))


def _stems(field: str, number: int) -> list[str]:
    """The field's name, and what it is without the numbers that make a name unique."""
    stems, suffix = [field], f"_n{number}"
    while stems[-1].endswith(suffix):
        stems.append(stems[-1].removesuffix(suffix))
    return stems


def _groups(possible: Mapping[int, list[str]]) -> Iterator[dict[int, list[str]]]:
    """Yield fields that have a column in common, directly or through others."""
    left = dict(possible)
    while left:
        number, some = left.popitem()
        group, reached = {number: some}, set(some)
        while near := [n for n, others in left.items() if reached & set(others)]:
            group |= {n: left.pop(n) for n in near}
            reached.update(*(group[n] for n in near))
        yield group


def _decide(fields: Mapping[int, str], group: Mapping[int, list[str]], what: str) -> dict[int, str]:
    columns = sorted({column for some in group.values() for column in some})
    if len(columns) == len(group) == 1 and fields[min(group)] == columns[0]:
        return {min(group): columns[0]}
    fitting = [] if _are_alike(group) else [*_fit_names(fields, group, columns)]
    most = max(map(len, fitting), default=0)
    best = [match for match in fitting if len(match) == most]
    if most and len(best) == 1:
        return best[0]
    named = ", ".join(f"{fields[number]} = {number}" for number in sorted(group))
    beside = " or ".join(f"// column {column!r}" for column in columns)
    raise ConfigError(
        f"{what}: the names do not tell which columns these fields are: {named}; they may be "
        f"{' or '.join(map(repr, columns))}",
        f"write behind each of them which it is: {beside}",
    )


def _are_alike(group: Mapping[int, list[str]]) -> bool:
    """Return whether a field may be any of several columns whose names protobuf does not take.

    Whichever of them has a number, its field would be called the same.
    """
    return any(sum(not is_identifier(name) for name in some) > 1 for some in group.values())


def _fit_names(
    fields: Mapping[int, str], group: Mapping[int, list[str]], columns: Collection[str]
) -> Iterator[dict[int, str]]:
    """Yield columns by number for which every field would be called as it is."""
    places = [[None, *(n for n, some in group.items() if name in some)] for name in columns]
    for numbers in product(*places):
        used = [number for number in numbers if number is not None]
        columns_of = {n: name for n, name in zip(numbers, columns, strict=True) if n is not None}
        if len(columns_of) == len(used) and field_names({**fields, **columns_of}.items()) == fields:
            yield columns_of
