"""The numbered rows of a campaign: what is in a row follows from its number, so that a judge
needs no copy of it.

A row is (table, source partition, number). Receives ranges of numbers, gives message values,
and tells whether columns that were read back hold what their numbers say. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tests.broker.pipeline import length_prefixed, varint

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]

HEADER = "chaos"
"""Of every source message: which rows it holds, and what was to become of it."""
COMMIT, ABORT, PLAIN, BAD = "commit", "abort", "plain", "bad"
"""Outcomes meant for a message: in a transaction, in none, or not to become rows at all."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a campaign.

    Attributes:
        stamped: has the column `_block`; else it relies on its deduplication window.
        weight: its share of the messages; shares are far apart, as in life.
        window: `non_replicated_deduplication_window`; 0: the campaign's own.
        viewed: a materialized view behind it writes all of its rows into a table of its own.
        expires: a TTL deletes those rows of it that `expired` names, as soon as it likes.
    """

    name: str
    stamped: bool
    weight: int
    window: int = 0
    viewed: bool = False
    expires: bool = False


TABLES = (
    Table("clicks", stamped=True, weight=60),
    Table("orders", stamped=True, weight=20),
    Table("visits", stamped=False, weight=10, window=10_000, viewed=True),
    Table("items", stamped=True, weight=6),
    Table("people", stamped=False, weight=3, window=10_000),
    Table("countries", stamped=True, weight=1),
    Table("sessions", stamped=True, weight=5, window=10_000, viewed=True, expires=True),
)

COLUMNS = "p Int32, n Int64, h UInt64, v String"
"""Partition, number, and two values that follow from them."""


EXPIRES_EVERY = 3
"""One row in so many is long over when it arrives, in a table whose rows expire."""


def expired(numbers: Numbers) -> npt.NDArray[np.bool_]:
    """Which rows a TTL may delete at once; the others stay for as long as anybody lives."""
    return numbers % EXPIRES_EVERY == 0


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """The rows first, first + 1, ... of a table (its index) from a source partition."""

    table: int
    partition: int
    first: int
    count: int

    def header(self, meant: str) -> bytes:
        """As the source message's header has it."""
        return f"{self.table},{self.partition},{self.first},{self.count},{meant}".encode()


def parse_header(value: bytes) -> tuple[Range, str]:
    """The reverse of `Range.header`."""
    *numbers, meant = value.decode().split(",")
    return Range(*map(int, numbers)), meant


def mixed(table: int, partition: int, numbers: Numbers) -> npt.NDArray[np.uint64]:
    """A 64-bit value for each row, in which neighbours do not look alike (splitmix64)."""
    z = numbers.astype(np.uint64) + np.uint64((table << 56) + (partition << 44))
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def texts(values: Sequence[int]) -> list[str]:
    """A text for each mixed value, of 0 to 48 characters."""
    return [f"{value:016x}"[: value % 17] * (value % 4) for value in values]


def message(rows: Range) -> bytes:
    """A RowBatch of these rows, in the field numbers that the registry gives the columns."""
    numbers = np.arange(rows.first, rows.first + rows.count)
    values = mixed(rows.table, rows.partition, numbers).tolist()
    head = b"\x08" + varint(rows.partition)
    out = bytearray()
    for number, value, text in zip(numbers.tolist(), values, texts(values), strict=True):
        row = head + b"\x10" + varint(number) + b"\x18" + varint(value)
        row += b"\x22" + length_prefixed(text.encode())
        out += b"\x0a" + length_prefixed(row)
    return bytes(out)


def bad_message(rows: Range) -> bytes:
    """A value that is no RowBatch, and differs from every other one."""
    return b"\xff\xff bad " + rows.header(BAD)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one table as they were read back, column by column."""

    partitions: Numbers
    numbers: Numbers
    values: npt.NDArray[np.uint64]
    texts: Sequence[str]

    def of(self, partition: int) -> Numbers:
        """The numbers from one source partition, in the order they were read."""
        return self.numbers[self.partitions == partition]


def altered(table: int, rows: Rows) -> int:
    """How many rows do not hold what their numbers say."""
    wrong = 0
    for partition in np.unique(rows.partitions).tolist():
        here = rows.partitions == partition
        right = mixed(table, partition, rows.numbers[here])
        found = [rows.texts[i] for i in np.flatnonzero(here)]
        same_text = np.array([a == b for a, b in zip(texts(right.tolist()), found, strict=True)])
        wrong += int((~((rows.values[here] == right) & same_text)).sum())
    return wrong


def joined(parts: Sequence[Rows]) -> Rows:
    """Several readings of one table as one."""
    if not parts:
        none = np.empty(0, np.int64)
        return Rows(none, none, none.astype(np.uint64), [])
    return Rows(
        np.concatenate([part.partitions for part in parts]),
        np.concatenate([part.numbers for part in parts]),
        np.concatenate([part.values for part in parts]),
        [text for part in parts for text in part.texts],
    )
