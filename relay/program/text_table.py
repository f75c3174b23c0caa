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

    What is left out where there is no room, unless `whole`: columns without anything but zeros
    first, then optional ones, which are named.
    """
    cells = _Cells(columns, rows)
    every = list(range(len(columns)))
    if cells.width(every, narrow=False) <= width:
        yield cells.table(every, width, narrow=False)
        return
    indices = every if whole else [i for i in every if not i or cells.any_but_zero(i)]
    spare = sorted((i for i in indices if columns[i].optional), key=lambda i: columns[i].optional)
    left_out: list[int] = []
    while cells.width(indices, narrow=True) > width and spare and not whole:
        left_out.append(spare.pop())
        indices.remove(left_out[-1])
    if cells.width(indices, narrow=True) > width:
        for row in rows:
            yield from _lines(columns, row, width)
        return
    yield cells.table(indices, width, narrow=True)
    if left_out:
        names = ", ".join(columns[i].heading for i in sorted(left_out))
        yield f"[dim]no room for columns: {escape(names)}[/dim]"


@dataclass(frozen=True, slots=True)
class _Cells:
    """The rows of a table; its columns are named by their index."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]

    def any_but_zero(self, index: int) -> bool:
        return any(_ZERO.fullmatch(row[index]) is None for row in self.rows)

    def longest(self, index: int) -> int:
        return max((cell_len(row[index]) for row in self.rows), default=0)

    def least(self, index: int, *, narrow: bool) -> int:
        """Return the smallest width of a column; `narrow`: with its heading in several lines."""
        column, longest = self.columns[index], self.longest(index)
        parts = column.heading.split() if narrow else [column.heading]
        return max(min(longest, _LEAST_WORDS) if column.words else longest, *map(cell_len, parts))

    def width(self, indices: Sequence[int], *, narrow: bool) -> int:
        """Return the smallest width of a table, with its lines and spaces."""
        return sum(3 + self.least(index, narrow=narrow) for index in indices) + 1

    def table(self, indices: Sequence[int], width: int, *, narrow: bool) -> Table:
        table = Table()
        room = width - self.width(indices, narrow=narrow)
        for index in indices:
            column, least = self.columns[index], self.least(index, narrow=narrow)
            table.add_column(
                column.heading,
                justify="right" if column.right and index else "left",
                width=min(max(least, self.longest(index)), least + room) if column.words else least,
            )
        for row in self.rows:
            table.add_row(*(escape(row[index]) for index in indices))
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
