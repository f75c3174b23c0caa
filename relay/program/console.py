"""Where tables for people are printed."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

_WORD = re.compile(r"\S+")


def console_of(width: int) -> Console:
    """Return the terminal, or one of `width` columns; `:x:` in an id is no emoji."""
    console = Console(emoji=False)
    return console if console.is_terminal else Console(width=width, emoji=False)


def print_parts(console: Console, parts: Iterable[Table | str]) -> None:
    """Print parts, text wrapped between words; a word longer than a line stays whole."""
    for part in parts:
        if isinstance(part, str):
            text = Text.from_markup(part, emoji=False)
            for line in text.divide(breaks(text.plain, console.width)):
                line.rstrip()
                console.print(line, soft_wrap=True)
        else:
            console.print(part, crop=False)


def breaks(text: str, width: int) -> list[int]:
    """Return where the lines after the first begin, each at a word."""
    starts: list[int] = []
    line = 0
    for word in _WORD.finditer(text):
        before = text[line : word.start()].strip()
        if before and cell_len(text[line : word.end()]) > width:
            line = word.start()
            starts.append(line)
    return starts
