"""Sorts one poll's messages by source partition and table.

Receives batches of one poll's messages in columns, gives one Arrival per (partition, table) with
what is needed of its messages; no Python code runs per message where all name known tables. How
many rows the messages hold is estimated, but for a table that is new here.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from relay.arrow.byte_column import ByteColumn, Gather, gather_one_by_one
from relay.core.records import Arrival
from relay.intake.message_batch import Batch, TableHeaders
from relay.rows.envelope import count_rows

Integers = npt.NDArray[np.int64]


HEADER_BYTES = 160
"""Of memory for each header beside its text: a tuple, its name and its value."""

_RADIX = 1 << 15
"""Numbers below it are sorted by numpy in linear time."""


@dataclass(slots=True)
class Poll:
    """One poll, sorted: arrivals, what they hold, and all offsets per partition.

    Attributes:
        chosen: by the arrival's partition and table, of which a poll has one arrival: where its
            messages are in the columns below.
        offsets: ascending, by partition.
        headers: by (partition, offset), of messages with others than the one that names a table.
        bytes: of values, keys and headers.
        values: addresses, valid until the next poll; the other columns belong to them.
        memory: what holds the values and keys.
        gather: copies values and keys.
    """

    arrivals: list[Arrival] = field(default_factory=list)
    chosen: dict[tuple[int, str], Integers] = field(default_factory=dict)
    offsets: dict[int, array[int]] = field(default_factory=dict)
    headers: dict[tuple[int, int], list[tuple[str, bytes | None]]] = field(default_factory=dict)
    bytes: int = 0
    values: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    value_sizes: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    keys: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    key_sizes: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    memory: list[Any] = field(default_factory=list)
    gather: Gather = gather_one_by_one


class RowDensity:
    """Estimate how many rows messages hold, by the rows per byte of their table's last block.

    Counting every message's rows when it arrives cost a sixth of the relay's time, and all it
    serves is block.max_rows: so rows are counted when a buffer is sealed, and estimated before.
    """

    _REMEMBERED = 10_000

    def __init__(self, framing: str) -> None:
        self._framing = framing
        self._rows_per_byte: dict[str, float] = {}
        self._decoded_per_byte: dict[str, float] = {}

    def decoded(self, table: str, size: int) -> int:
        """Return about how many bytes the rows in so many take as columns; 0: not known yet."""
        return round(self._decoded_per_byte.get(table, 0) * size)

    def rows(self, table: str, size: int) -> int | None:
        """Return about how many rows so many bytes hold; None where the table is new here."""
        density = self._rows_per_byte.get(table)
        return None if density is None else round(density * size)

    def count(self, table: str, values: pa.ChunkedArray[Any], size: int) -> int:
        """Return how many rows these messages hold, learned for later ones."""
        rows = int(count_rows(values, self._framing).sum())
        self.learn(table, rows, size)
        return rows

    def learn(self, table: str, rows: int, size: int, decoded: int = 0) -> None:
        """Learn from a sealed buffer; `size`: its messages' bytes, `decoded`: its columns'."""
        if size and (table in self._rows_per_byte or len(self._rows_per_byte) < self._REMEMBERED):
            self._rows_per_byte[table] = rows / size
            self._decoded_per_byte[table] = decoded / size


class Intake:
    """The messages of one poll.

    Args:
        headers: remembers tables from poll to poll.
        density: estimates rows.
    """

    def __init__(self, headers: TableHeaders, density: RowDensity) -> None:
        headers.trim()
        self._tables = headers
        self._density = density
        self._batches: list[Batch] = []

    def add(self, batch: Batch) -> None:
        """Add some of the poll's messages."""
        self._batches.append(batch)

    def sorted(self) -> Poll:
        """Return all that was added: arrivals, what they hold, offsets per partition."""
        batches = [batch for batch in self._batches if len(batch.offsets)]
        if not batches:
            return Poll()
        partitions = np.concatenate([batch.partitions for batch in batches])
        numbers = np.concatenate([batch.numbers for batch in batches])
        poll = Poll(
            headers={
                (int(batch.partitions[at]), int(batch.offsets[at])): headers
                for batch in batches
                for at, headers in batch.headers.items()
            },
            values=np.concatenate([batch.values for batch in batches]),
            value_sizes=np.concatenate([batch.value_sizes for batch in batches]),
            keys=np.concatenate([batch.keys for batch in batches]),
            key_sizes=np.concatenate([batch.key_sizes for batch in batches]),
            memory=[batch.memory for batch in batches],
            gather=batches[-1].gather,
        )
        beside = np.maximum(poll.key_sizes, 0) + _header_weights(batches)
        order = _order(partitions, numbers)
        partitions, numbers = partitions[order], numbers[order]
        offsets = np.concatenate([batch.offsets for batch in batches])[order]
        changes = np.flatnonzero(np.diff(partitions) | np.diff(numbers)) + 1
        for low, high in pairwise([0, *changes.tolist(), len(order)]):
            partition, table = int(partitions[low]), self._tables.tables[int(numbers[low])]
            chosen = order[low:high]
            size = int(np.maximum(poll.value_sizes[chosen], 0).sum())
            arrival = Arrival(
                partition,
                table,
                _packed(offsets[low:high]),
                self._rows(table, poll, chosen, size),
                size,
                _timestamp(batches, int(chosen[0])),
                self._density.decoded(table, size),
                int(beside[chosen].sum()),
            )
            poll.arrivals.append(arrival)
            poll.chosen[partition, table] = chosen
            poll.bytes += arrival.memory
        poll.offsets = _by_partition(partitions, offsets)
        return poll

    def _rows(self, table: str, poll: Poll, chosen: Integers, size: int) -> int:
        if (known := self._density.rows(table, size)) is not None:
            return known
        values = ByteColumn()
        values.extend(poll.values, poll.value_sizes, chosen, poll.gather)
        return self._density.count(table, values.array(), size)


def _header_weights(batches: Sequence[Batch]) -> Integers:
    """Bytes that are kept of each message's headers."""
    weights = np.zeros(sum(len(batch.offsets) for batch in batches), np.int64)
    first = 0
    for batch in batches:
        for at, headers in batch.headers.items():
            weights[first + at] = header_weight(headers)
        first += len(batch.offsets)
    return weights


def header_weight(headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Return bytes for which the headers of a message count that has others than its table's."""
    return sum(len(name) + len(value or b"") + HEADER_BYTES for name, value in headers)


def _timestamp(batches: list[Batch], at: int) -> int:
    """Of a message, by its place in all batches."""
    for batch in batches:
        if at < len(batch.offsets):
            return batch.timestamp(at)
        at -= len(batch.offsets)
    raise IndexError(at)


def _order(partitions: Integers, numbers: Integers) -> Any:
    """Sort by partition and table; messages of the same stay in the order in which they came."""
    keys = partitions * (int(numbers.max()) + 1) + numbers
    return np.argsort(keys.astype(np.int16) if int(keys.max()) < _RADIX else keys, kind="stable")


def _by_partition(partitions: Integers, offsets: Integers) -> dict[int, array[int]]:
    """Ascending offsets of each partition; both arrays are sorted by partition."""
    cuts = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]
    return {
        int(partitions[low]): _packed(np.sort(offsets[low:high], kind="stable"))
        for low, high in pairwise(cuts)
    }


def _packed(offsets: Integers) -> array[int]:
    """Return what the core reads as numbers and numpy as an array; it holds no object for each."""
    return array("q", offsets.tobytes())
