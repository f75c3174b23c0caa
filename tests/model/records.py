"""Topics of the model and the values in them."""

from __future__ import annotations

from typing import NamedTuple

SOURCE, JOURNAL, DEAD = "source", "journal", "dead"


class Message(NamedTuple):
    """A source message: one row, or a value that does not decode."""

    table: str
    bad: bool = False
    size: int = 10


class Chunk(NamedTuple):
    """A record of a block topic: the source offsets of its rows."""

    block: str
    seq: int
    rows: tuple[int, ...]


class DeadLetter(NamedTuple):
    """A record of the dead-letter topic."""

    partition: int
    offset: int
