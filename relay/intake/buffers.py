"""The messages behind the core's buffers, held until they are sealed.

Receives the groups of sorted polls as addresses and sizes, copies each value once, from where the
client has it, and gives what a sealed buffer holds, as Arrow arrays over the bytes copied.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Any

import pyarrow as pa

from relay import names
from relay.arrow.byte_column import ByteColumn
from relay.blocks.dead_letter import Origin
from relay.core.records import Arrival
from relay.intake.sort_poll import Poll, header_weight


class Held:
    """Messages of one buffer, by ascending offset.

    Values become rows. Keys and headers are for dead letters; of the headers only those of messages
    are here, by offset, that have others than the one that names their table.
    """

    def __init__(self, table: str) -> None:
        self.table = table
        self.offsets = array("q")
        self.values = ByteColumn()
        self.keys = ByteColumn()
        self.headers: dict[int, list[tuple[str, bytes | None]]] = {}

    def drop(self, messages: int) -> None:
        """Forget the first of them."""
        self.offsets = self.offsets[messages:]
        self.values.drop(messages)
        self.keys.drop(messages)
        self.headers = {at: of for at, of in self.headers.items() if at >= self.offsets[0]}

    def sizes(self, messages: int) -> tuple[int, int]:
        """Return bytes of the values of so many of the first messages, and of the others."""
        first = self.values.size(messages)
        return first, self.values.size(len(self.offsets)) - first

    def beside(self, messages: int) -> int:
        """Return bytes of keys and headers of so many of the first messages, as buffers count."""
        last = self.offsets[messages - 1]
        weights = (header_weight(of) for offset, of in self.headers.items() if offset <= last)
        return self.keys.size(messages) + sum(weights)

    def column(self) -> pa.ChunkedArray[Any]:
        """Return the values as Arrow arrays."""
        return self.values.array()

    def value(self, offset: int) -> bytes | None:
        """Value of the message at this offset."""
        return self.values[bisect_left(self.offsets, offset)]

    def origin(self, offset: int) -> Origin:
        """Key and headers of the message at this offset."""
        plain = [(names.TABLE_HEADER, self.table.encode())]
        key = self.keys[bisect_left(self.offsets, offset)]
        return Origin(key, self.headers.get(offset, plain))


class Buffers:
    """The messages behind the core's buffers, by (partition, table)."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, str], Held] = {}

    def held(self) -> list[Held]:
        """Return all of them, as they are."""
        return list(self._held.values())

    def keep(self, arrival: Arrival, poll: Poll, skip: int) -> None:
        """Copy the messages of one of the poll's arrivals but for the first `skip`."""
        key = (arrival.partition, arrival.table)
        chosen = poll.chosen[key][skip:]
        messages = self._held.get(key)
        if messages is None:
            messages = self._held[key] = Held(arrival.table)
        offsets = arrival.offsets[skip:]
        messages.offsets.extend(offsets)
        messages.values.extend(poll.values, poll.value_sizes, chosen, poll.gather)
        messages.keys.extend(poll.keys, poll.key_sizes, chosen, poll.gather)
        if poll.headers:
            keys = ((arrival.partition, offset) for offset in offsets)
            messages.headers.update({k[1]: poll.headers[k] for k in keys if k in poll.headers})

    def take(self, partition: int, table: str) -> Held:
        """Return a buffer that is being sealed; it is not held any more."""
        return self._held.pop((partition, table))

    def put_back(self, partition: int, held: Held) -> None:
        """Hold again what is left of a buffer that was taken."""
        self._held[partition, held.table] = held

    def drop(self, partitions: frozenset[int]) -> None:
        """Forget everything of these partitions."""
        self._held = {k: v for k, v in self._held.items() if k[0] not in partitions}
