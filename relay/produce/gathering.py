"""Gathers rows that are written one by one, by table, until they fill a message.

Receives serialized rows, gives them back as one array per table when there are enough of them
or they have waited long enough. Sends nothing, has no clock and no lock of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa


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
    """Rows of all tables that are not yet in a message.

    Args:
        batching: when they are enough.
    """

    def __init__(self, batching: Batching) -> None:
        self._batching = batching
        self._tables: dict[str, _GatheredTable] = {}

    def add(self, table: str, row: bytes, now: float) -> bool:
        """Return one more row; whether its table has enough."""
        gathered = self._tables.get(table)
        if gathered is None:
            gathered = self._tables[table] = _GatheredTable(now)
        gathered.rows.append(row)
        gathered.bytes += len(row)
        limit = self._batching
        return len(gathered.rows) >= limit.rows or gathered.bytes >= limit.bytes

    def take(self, table: str) -> pa.BinaryArray:
        """Return a table's rows, which are not kept."""
        gathered = self._tables.pop(table, None)
        return pa.array([] if gathered is None else gathered.rows, pa.binary())

    def __bool__(self) -> bool:
        """Whether there are rows."""
        return bool(self._tables)

    def tables(self) -> list[str]:
        """Return those with rows."""
        return list(self._tables)

    def aged(self, now: float) -> list[str]:
        """Return those whose rows have waited long enough."""
        return [t for t, g in self._tables.items() if now >= g.opened + self._batching.seconds]

    def next_due(self) -> float | None:
        """Return when the next will have; None if there are no rows."""
        opened = min((g.opened for g in self._tables.values()), default=None)
        return None if opened is None else opened + self._batching.seconds

    def clear(self) -> None:
        """Drop all rows."""
        self._tables.clear()
