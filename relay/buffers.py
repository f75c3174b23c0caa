"""The messages behind the core's buffers, held until they are sealed.

Receives the groups of sorted polls, gives what a sealed buffer holds; estimates rows before.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from relay import names
from relay.dead.letter import Origin
from relay.decode import count_rows

if TYPE_CHECKING:
    from relay.core.records import Arrival
    from relay.intake import Poll


class RowDensity:
    """Rows per byte of each table's messages, as its last block had them.

    Counting every message's rows when it arrives cost a sixth of the relay's time, and all it
    serves is block.max_rows: so rows are counted when a buffer is sealed, and estimated before.
    """

    _REMEMBERED = 10_000

    def __init__(self, framing: str) -> None:
        self._framing = framing
        self._rows_per_byte: dict[str, float] = {}

    def rows(self, table: str, values: list[bytes | None], size: int) -> int:
        """About how many rows these messages hold; counted where the table is new here."""
        known = self._rows_per_byte.get(table)
        if known is None:
            rows = int(count_rows(pa.array(values, pa.binary()), self._framing).sum())
            self.learn(table, rows, size)
            return rows
        return round(known * size)

    def learn(self, table: str, rows: int, size: int) -> None:
        """What a sealed buffer turned out to hold."""
        if size and (table in self._rows_per_byte or len(self._rows_per_byte) < self._REMEMBERED):
            self._rows_per_byte[table] = rows / size


@dataclass(slots=True)
class Held:
    """Messages of one buffer: what becomes rows, and what only their dead letters would need.

    Attributes:
        offsets: ascending.
        values: as many as offsets.
        keys: likewise.
        headers: by offset, of messages with others than the one that names their table.
    """

    table: str
    offsets: list[int] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    headers: dict[int, list[tuple[str, bytes | None]]] = field(default_factory=dict)

    def column(self) -> pa.BinaryArray:
        """The values as an Arrow array."""
        return pa.array(self.values, pa.binary())

    def origin(self, offset: int) -> Origin:
        """Key and headers of the message at this offset."""
        plain = [(names.TABLE_HEADER, self.table.encode())]
        key = self.keys[bisect_left(self.offsets, offset)]
        return Origin(key, self.headers.get(offset, plain))


class Buffers:
    """The messages behind the core's buffers, by (partition, table)."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, str], Held] = {}

    def keep(self, arrival: Arrival, poll: Poll, skip: int) -> None:
        """Hold the messages of one of the poll's arrivals but for the first `skip`."""
        group = poll.groups[id(arrival)]
        held = self._held.setdefault((arrival.partition, arrival.table), Held(arrival.table))
        offsets = group.offsets[skip:]
        held.offsets.extend(offsets)
        held.values.extend(group.values[skip:])
        held.keys.extend(group.keys[skip:])
        if poll.headers:
            places = ((arrival.partition, offset) for offset in offsets)
            kept = {place[1]: poll.headers[place] for place in places if place in poll.headers}
            held.headers.update(kept)

    def take(self, partition: int, table: str) -> Held:
        """A buffer that is being sealed; it is not held any more."""
        return self._held.pop((partition, table))

    def drop(self, partitions: frozenset[int]) -> None:
        """Forget everything of these partitions."""
        self._held = {k: v for k, v in self._held.items() if k[0] not in partitions}
