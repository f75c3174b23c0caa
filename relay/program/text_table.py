"""Rows for people on any width: a table where that fits, else one row under the other. Pure.

Receives columns and cells of plain text, gives what rich prints. No cell is ever shortened or
broken: names and ids are there to be copied.
"""

# pure

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.markup import escape
from rich.table import Table

_ZERO = re.compile(r"(0(\.0 s)?( \(0 rows\))?)?")
_BETWEEN, _INDENT = " · ", "  "
_LEAST_WORDS = 30
"""So wide is a column of words at least, which are wrapped."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column; the first says what a row is about.

    Attributes:
        right: numbers are.
        optional: may be left out where there is no room, the greatest number first; 0: it stays.
        words: its cells are sentences, which may be wrapped.
    """

    heading: str
    right: bool = True
    optional: int = 0
    words: bool = False


def laid_out(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int, *, whole: bool = False
) -> Iterator[Table | str]:
    """Lay rows out as one table that fits, or as lines.

    What is left out where there is no room: columns without anything but zeros first, then
    optional ones, which are named.

    Args:
        columns: of the rows.
        rows: a cell for each column.
        width: of the terminal.
        whole: leave out nothing.
    """
    every = list(range(len(columns)))
    if _needs(columns, rows, every, narrow=False) <= width:
        yield _table(columns, rows, every, width, narrow=False)
        return
    some = every if whole else [at for at in every if not at or _says(rows, at)]
    spare = sorted((at for at in some if columns[at].optional), key=lambda at: columns[at].optional)
    left_out: list[int] = []
    while _needs(columns, rows, some, narrow=True) > width and spare and not whole:
        left_out.append(spare.pop())
        some = [at for at in some if at != left_out[-1]]
    if _needs(columns, rows, some, narrow=True) > width:
        for row in rows:
            yield from _lines(columns, row, width)
        return
    yield _table(columns, rows, some, width, narrow=True)
    if left_out:
        names = ", ".join(columns[at].heading for at in sorted(left_out))
        yield f"[dim]no room for columns: {escape(names)}[/dim]"


def _says(rows: Sequence[Sequence[str]], at: int) -> bool:
    return any(_ZERO.fullmatch(row[at]) is None for row in rows)


def _least(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], at: int, *, narrow: bool
) -> int:
    heading = columns[at].heading
    parts = heading.split() if narrow else [heading]
    longest = max((cell_len(row[at]) for row in rows), default=0)
    if columns[at].words:
        longest = min(longest, _LEAST_WORDS)
    return max(longest, *map(cell_len, parts))


def _needs(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], some: Sequence[int], *, narrow: bool
) -> int:
    """Return the width that a table needs, with its lines and spaces."""
    return sum(3 + _least(columns, rows, at, narrow=narrow) for at in some) + 1


def _table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    some: Sequence[int],
    width: int,
    *,
    narrow: bool,
) -> Table:
    table = Table()
    room = width - _needs(columns, rows, some, narrow=narrow)
    for at in some:
        least = _least(columns, rows, at, narrow=narrow)
        longest = max(map(cell_len, (row[at] for row in rows)), default=0)
        table.add_column(
            columns[at].heading,
            justify="right" if columns[at].right and at else "left",
            width=min(max(least, longest), least + room) if columns[at].words else least,
        )
    for row in rows:
        table.add_row(*(escape(row[at]) for at in some))
    return table


def _lines(columns: Sequence[Column], row: Sequence[str], width: int) -> Iterator[str]:
    """Yield a row's name, then its cells that are not zero, as many to a line as fit."""
    name = f"{columns[0].heading} {row[0]}" if row[0].isdigit() else row[0]
    yield f"[bold]{escape(name)}[/bold]"
    pairs = [
        f"{column.heading} {cell}"
        for column, cell in zip(columns[1:], row[1:], strict=True)
        if _ZERO.fullmatch(cell) is None
    ]
    line = ""
    for pair in pairs:
        if line and cell_len(_INDENT + line + _BETWEEN + pair) > width:
            yield _INDENT + escape(line)
            line = ""
        line += (_BETWEEN if line else "") + pair
    if line:
        yield _INDENT + escape(line)
