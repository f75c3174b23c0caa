"""The documents as files: their text, their parts, and the tables between marks.

A generated table stands between `<!-- table: NAME -->` and `<!-- end of table -->`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from relay.cli.docs import GROUPS, ROOT, anchor_of

PATHS = tuple(path for group in GROUPS.values() for path in group)
"""Every document, from ROOT."""

_TABLE = re.compile(r"(<!-- table: ([a-z-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
_FENCE = re.compile(r"^```([a-z]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"``?([^`\n]+)``?")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def text_of(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def every() -> Mapping[str, str]:
    """Text of all documents by path."""
    return {path: text_of(path) for path in PATHS}


def names_of_tables(text: str) -> list[str]:
    """The generated tables of a document, in order."""
    return [found[2] for found in _TABLE.finditer(text)]


def filled(text: str, tables: Mapping[str, str]) -> str:
    """The document with each table as `tables` has it.

    Raises:
        KeyError: a mark names a table that nothing makes.
    """
    return _TABLE.sub(lambda found: f"{found[1]}{tables[found[2]].strip()}\n\n{found[3]}", text)


def without_tables(text: str) -> str:
    """What people wrote of a document."""
    return _TABLE.sub("", text)


def fences(text: str, *languages: str) -> Iterator[str]:
    """The fenced blocks in one of these languages."""
    for found in _FENCE.finditer(text):
        if found[1] in languages:
            yield found[2]


def prose(text: str) -> str:
    """The document without its fenced blocks."""
    return _FENCE.sub("", text)


def code(text: str) -> list[str]:
    """What stands between backticks outside of fenced blocks."""
    return _CODE.findall(prose(text))


def links(text: str) -> list[str]:
    """Targets of links and pictures."""
    return _LINK.findall(re.sub(_CODE, "", prose(text)))


def anchors(text: str) -> set[str]:
    """The anchors of a document's headings, as GitHub and GitLab make them."""
    found: set[str] = set()
    for heading in _HEADING.findall(prose(text)):
        slug = anchor_of(heading)
        number = 0
        while (name := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(name)
    return found


def broken_links(path: str, text: str) -> list[str]:
    """Links of the document at `path` whose file or anchor does not exist."""
    found = []
    for link in links(text):
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        file = ((ROOT / path).parent / name) if name else ROOT / path
        if not file.exists():
            found.append(f"{path}: {link}: no such file")
        elif anchor and anchor not in anchors(text if not name else file.read_text("utf-8")):
            found.append(f"{path}: {link}: no such heading")
    return found


def summary_of(text: str) -> str:
    """The paragraph under the title."""
    return text.split("\n\n", 2)[1]


def is_within(file: Path) -> bool:
    """Whether a path, from ROOT, exists there."""
    return (ROOT / file).exists()


def table(head: Iterable[str], body: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    head = tuple(head)
    lines = [_row(head), _row("---" for _ in head).replace(" ", "")]
    return "\n".join([*lines, *map(_row, body)])


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
