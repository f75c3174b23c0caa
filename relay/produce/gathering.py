"""Gathers serialized rows by table, and cuts them into messages.

Receives rows one by one, or as an Arrow array with the ends of messages; gives the messages' values
(`message RowBatch { repeated bytes rows = 1; }`). Sends nothing, and never looks into a row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relay.arrow.array_memory import starts_of
from relay.rows.envelope import row_batch_handler, varint_sizes

if TYPE_CHECKING:
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Batching:
    """When rows written one by one become a message: whichever is reached first.

    Attributes:
        rows: of one message; also of those that `write_arrow` makes.
        bytes: of one message; `write_arrow` cuts above it. Below the topic's max.message.bytes.
        seconds: for which the oldest row waits.
    """

    rows: int = 1000
    bytes: int = 500_000
    seconds: float = 0.1


@dataclass(slots=True)
class _GatheredTable:
    opened: float
    rows: list[bytes] = field(default_factory=list)
    bytes: int = 0


class Gathered:
    """Rows of all tables that are not yet in a message; has no clock and no lock of its own."""

    def __init__(self, batching: Batching) -> None:
        self._batching = batching
        self._tables: dict[str, _GatheredTable] = {}

    def add(self, table: str, row: bytes, now: float) -> bool:
        """Add a row; return whether its table has enough for a message."""
        gathered = self._tables.get(table)
        if gathered is None:
            gathered = self._tables[table] = _GatheredTable(now)
        gathered.rows.append(row)
        gathered.bytes += len(row)
        limit = self._batching
        return len(gathered.rows) >= limit.rows or gathered.bytes >= limit.bytes

    def take(self, table: str) -> pa.BinaryArray:
        """Take a table's rows out, and return them."""
        gathered = self._tables.pop(table, None)
        return pa.array([] if gathered is None else gathered.rows, pa.binary())

    def __bool__(self) -> bool:
        """Whether there are rows."""
        return bool(self._tables)

    def tables(self) -> list[str]:
        """Return the tables with rows."""
        return list(self._tables)

    def aged(self, now: float) -> list[str]:
        """Return the tables whose rows have waited long enough."""
        return [t for t, g in self._tables.items() if now >= g.opened + self._batching.seconds]

    def next_due(self) -> float | None:
        """Return when the next table's rows will have waited enough; None if there are no rows."""
        opened = min((g.opened for g in self._tables.values()), default=None)
        return None if opened is None else opened + self._batching.seconds

    def clear(self) -> None:
        """Drop all rows."""
        self._tables.clear()


def even_ends(rows: int, per_message: int) -> Integers:
    """Return ends of messages with `per_message` rows each; the last may have fewer."""
    return np.append(np.arange(per_message, rows, per_message), rows)[: None if rows else 0]


def random_ends(rows: int, least: int, most: int, random: np.random.Generator) -> Integers:
    """Return ends of messages with `least` to `most` rows each, all sizes equally likely.

    The last takes what is left, which may be fewer.
    """
    ends = np.cumsum(random.integers(least, most + 1, size=rows // least + 1))
    return np.append(ends[ends < rows], rows)[: None if rows else 0]


def cut_long(rows: pa.BinaryArray, ends: Integers, max_bytes: int) -> Integers:
    """Return the ends, with more between them where a message would be longer than `max_bytes`.

    Halves are tried until each fits. A row that is longer on its own stays alone: whether it is
    too long is for the topic's max.message.bytes to say.
    """
    lengths = pc.binary_length(rows).to_numpy().astype(np.int64)
    bytes_before = starts_of(lengths + varint_sizes(lengths) + 1)
    starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    fits = (bytes_before[ends] - bytes_before[starts] <= max_bytes) | (ends - starts == 1)
    if fits.all():
        return ends
    middles = (starts[~fits] + ends[~fits]) // 2
    return cut_long(rows, np.union1d(ends, middles), max_bytes)


def pack(rows: pa.BinaryArray, ends: Integers) -> pa.BinaryArray:
    """Return the values of messages which hold rows 0 to ends[0], ends[0] to ends[1], and so on."""
    offsets: Any = pa.array(np.concatenate([[0], ends]).astype(np.int32))
    lists: Any = pa.ListArray.from_arrays(offsets, rows)
    batch = pa.RecordBatch.from_arrays([lists], names=["rows"])
    values: pa.BinaryArray = row_batch_handler().record_batch_to_array(batch)
    return values


def messages(rows: pa.BinaryArray, ends: Integers, max_bytes: int) -> list[tuple[bytes, int]]:
    """Return values of messages with the number of rows in each; none longer than `max_bytes`."""
    ends = cut_long(rows, ends, max_bytes)
    values: list[Any] = pack(rows, ends).to_pylist()
    return list(zip(values, np.diff(ends, prepend=0).tolist(), strict=True))
