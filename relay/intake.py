"""Sort one poll's messages by source partition and table; hold what waits for a block.

Receives Kafka messages, gives one Arrival per (partition, table), and one Arrow array per
sealed buffer: from there on no message is a Python object any more. The table comes from
the header alone, so that the same message always belongs to the same table, whatever the
catalogue says at the time; what has no readable header belongs to the table "".
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from confluent_kafka import Message

from relay import names
from relay.core.records import Arrival
from relay.dead.letter import Origin
from relay.decode import count_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

Headers = list[tuple[str, bytes | None]] | None
"""As the consumer gives them: in the order written, names possibly repeated."""

NO_TABLE = ""
"""The table of messages whose header names none; its "block" is their dead letters."""


@dataclass(slots=True)
class Group:
    """Messages of one table from one source partition, as they came.

    Attributes:
        offsets: ascending.
        keys: as many as offsets.
        first: of a poll's messages, the index of the first of these.
    """

    offsets: list[int] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    first: int = 0


@dataclass(slots=True)
class Held:
    """Messages of one buffer: what becomes rows, and what only their dead letters would need.

    Attributes:
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


@dataclass(slots=True)
class Poll:
    """One poll, sorted: arrivals, what they hold, and all offsets per partition.

    Attributes:
        groups: by the arrival's `id`.
        headers: by (partition, offset), of messages with others than the one that names a table.
    """

    arrivals: list[Arrival] = field(default_factory=list)
    groups: dict[int, Group] = field(default_factory=dict)
    offsets: dict[int, list[int]] = field(default_factory=dict)
    headers: dict[tuple[int, int], list[tuple[str, bytes | None]]] = field(default_factory=dict)
    bytes: int = 0


class TableHeaders:
    """Headers to table name, remembered: a topic has few tables and many messages."""

    _REMEMBERED = 10_000  # invented names beyond it are read again each time

    def __init__(self) -> None:
        self._known: dict[tuple[str, bytes | None], str] = {}

    def table(self, headers: Headers) -> str:
        """The table that exactly one header `table` names in plain UTF-8, or NO_TABLE."""
        if headers is not None and len(headers) == 1 and headers[0] in self._known:
            return self._known[headers[0]]
        found = [value for key, value in headers or () if key == names.TABLE_HEADER]
        table = self._parse(found[0]) if len(found) == 1 else NO_TABLE
        if headers is not None and len(headers) == 1 and len(self._known) < self._REMEMBERED:
            self._known[headers[0]] = table
        return table

    @staticmethod
    def _parse(raw: bytes | None) -> str:
        try:
            text = (raw or b"").decode("utf-8")
        except UnicodeDecodeError:
            return NO_TABLE
        return text if names.is_table_name(text) else NO_TABLE


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


def sort(messages: Sequence[Message], headers: TableHeaders, density: RowDensity) -> Poll:
    """Arrivals of one poll; messages carry no error (relay.source has looked)."""
    poll = Poll()
    for (partition, table), group in _group(messages, headers, poll).items():
        size = sum(map(len, filter(None, group.values)))
        rows = density.rows(table, group.values, size)
        timestamp_ms = messages[group.first].timestamp()[1]
        arrival = Arrival(partition, table, group.offsets, rows, size, timestamp_ms)
        poll.arrivals.append(arrival)
        poll.groups[id(arrival)] = group
        poll.bytes += size
    return poll


def _group(
    messages: Sequence[Message], headers: TableHeaders, poll: Poll
) -> dict[tuple[int, str], Group]:
    """The messages by (partition, table).

    The loop below is the only Python code that runs per message: the client's getters are
    mapped in C, and a table's header is looked up once per partition and poll. Its cost
    per message is in the benchmark's table.
    """
    groups: dict[tuple[int, str], Group] = {}
    # The same group under each distinct header that names its table.
    seen: dict[tuple[int, tuple[str, bytes | None]], tuple[Any, Any, Any]] = {}
    polled: dict[int, Any] = {}
    columns: Any = zip(
        map(Message.partition, messages),
        map(Message.offset, messages),
        map(Message.value, messages),
        map(Message.key, messages),
        map(Message.headers, messages),
        strict=True,
    )
    for at, (partition, offset, value, key, raw_headers) in enumerate(columns):
        plain = raw_headers is not None and len(raw_headers) == 1
        appends = seen.get((partition, raw_headers[0])) if plain else None
        if appends is None:
            table = headers.table(raw_headers)
            group = groups.get((partition, table))
            if group is None:
                group = groups[partition, table] = Group(first=at)
            appends = (group.offsets.append, group.values.append, group.keys.append)
            if plain and table != NO_TABLE:
                seen[partition, raw_headers[0]] = appends
            else:
                poll.headers[partition, offset] = raw_headers or []
            if partition not in polled:
                polled[partition] = poll.offsets.setdefault(partition, []).append
        appends[0](offset)
        appends[1](value)
        appends[2](key)
        polled[partition](offset)
    return groups


class Buffers:
    """The messages behind the core's buffers, by (partition, table)."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, str], Held] = {}

    def keep(self, arrival: Arrival, poll: Poll, skip: int) -> None:
        """Hold the messages of one of the poll's arrivals but for the first `skip`."""
        group = poll.groups[id(arrival)]
        held = self._held.setdefault((arrival.partition, arrival.table), Held(arrival.table))
        held.offsets.extend(group.offsets[skip:])
        held.values.extend(group.values[skip:])
        held.keys.extend(group.keys[skip:])
        if poll.headers:
            places = ((arrival.partition, offset) for offset in group.offsets[skip:])
            kept = {place[1]: poll.headers[place] for place in places if place in poll.headers}
            held.headers.update(kept)

    def take(self, partition: int, table: str) -> Held:
        """A buffer that is being sealed; it is not held any more."""
        return self._held.pop((partition, table))

    def drop(self, partitions: frozenset[int]) -> None:
        """Forget everything of these partitions."""
        self._held = {k: v for k, v in self._held.items() if k[0] not in partitions}
