"""One poll's messages, sorted by source partition and table.

Receives Kafka messages in batches of one poll, gives one Arrival per (partition, table) with
what is needed of its messages; no Python code runs per message where all name known tables.
The table comes from the header alone, so that the same message always belongs to the same table,
whatever the catalogue says at the time; what has no readable header belongs to the table "".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from confluent_kafka import Message

from relay import names
from relay.core.records import Arrival

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from relay.buffers import RowDensity

    Integers = npt.NDArray[np.int64]

Headers = list[tuple[str, bytes | None]] | None
"""As the consumer gives them: in the order written, names possibly repeated."""

NO_TABLE = ""
"""The table of messages whose header names none; its "block" is their dead letters."""

_RADIX = 1 << 15
"""Numbers below it are sorted by numpy in linear time."""


@dataclass(slots=True)
class Group:
    """Messages of one table from one source partition, as they came."""

    offsets: list[int]
    values: list[bytes | None]
    keys: list[bytes | None]


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
    """Headers to table, remembered: a topic has few tables and many messages.

    Attributes:
        tables: by number; number 0 is NO_TABLE.
    """

    _REMEMBERED = 10_000

    def __init__(self) -> None:
        self.tables: list[str] = [NO_TABLE]
        self._numbers: dict[str, int] = {NO_TABLE: 0}
        self._plain: dict[tuple[tuple[str, bytes | None], ...], int] = {}

    def numbers(self, headers: Sequence[Headers]) -> tuple[Integers, list[int]]:
        """Each message's table by number, and which messages have other headers than that one.

        Where all have the one header of a table seen before, no Python code runs per message.
        """
        try:
            known = map(self._plain.__getitem__, map(tuple, headers))  # type: ignore[arg-type]
            return np.fromiter(known, np.int64, len(headers)), []
        except (KeyError, TypeError):  # a new table, further headers, or none at all
            found = [self._number(one) for one in headers]
        others = [at for at, (_, plain) in enumerate(found) if not plain]
        return np.fromiter((number for number, _ in found), np.int64, len(found)), others

    def table(self, headers: Headers) -> str:
        """The table that exactly one header `table` names in plain UTF-8, or NO_TABLE."""
        found = [value for key, value in headers or () if key == names.TABLE_HEADER]
        return self._parse(found[0]) if len(found) == 1 else NO_TABLE

    def trim(self) -> None:
        """Between polls: forget all when too many were invented; a number may change then."""
        if len(self.tables) > self._REMEMBERED:
            self.tables, self._numbers, self._plain = [NO_TABLE], {NO_TABLE: 0}, {}

    def _number(self, headers: Headers) -> tuple[int, bool]:
        """The table's number, and whether the header that names it stands alone."""
        key = tuple(headers or ())
        if key in self._plain:
            return self._plain[key], True
        table = self.table(headers)
        number = self._numbers.setdefault(table, len(self.tables))
        if number == len(self.tables):
            self.tables.append(table)
        plain = len(key) == 1 and table != NO_TABLE
        if plain:
            self._plain[key] = number
        return number, plain

    @staticmethod
    def _parse(raw: bytes | None) -> str:
        try:
            text = (raw or b"").decode("utf-8")
        except UnicodeDecodeError:
            return NO_TABLE
        return text if names.is_table_name(text) else NO_TABLE


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
        self._poll = Poll()
        self._partitions: list[Integers] = []
        self._numbers: list[Integers] = []
        self._offsets: list[Integers] = []
        # Copied into columns once, when sealed: joining and sorting them as columns here cost
        # three copies more, which for large messages took longer than all the rest.
        self._values: list[bytes | None] = []
        self._keys: list[bytes | None] = []
        self._timestamps: dict[tuple[int, int], int] = {}

    def add(self, messages: Sequence[Message]) -> None:
        """Some of the poll's messages, none with an error; they are not needed afterwards.

        The client's getters are mapped in C: what runs per message here is no Python code.
        """
        count = len(messages)
        partitions = np.fromiter(map(Message.partition, messages), np.int64, count)
        offsets = np.fromiter(map(Message.offset, messages), np.int64, count)
        getter: Any = Message.headers  # typed for what may be produced too
        headers: list[Headers] = list(map(getter, messages))
        numbers, others = self._tables.numbers(headers)
        for at in others:
            self._poll.headers[int(partitions[at]), int(offsets[at])] = headers[at] or []
        self._partitions.append(partitions)
        self._numbers.append(numbers)
        self._offsets.append(offsets)
        self._values.extend(map(Message.value, messages))
        self._keys.extend(map(Message.key, messages))
        for at in _firsts(partitions, numbers):
            place = int(partitions[at]), int(numbers[at])
            self._timestamps.setdefault(place, messages[at].timestamp()[1])

    def sorted(self) -> Poll:
        """All that was added: arrivals, what they hold, offsets per partition."""
        poll = self._poll
        if not self._offsets:
            return poll
        partitions = np.concatenate(self._partitions)
        numbers = np.concatenate(self._numbers)
        order = _order(partitions, numbers)
        partitions, numbers = partitions[order], numbers[order]
        offsets = np.concatenate(self._offsets)[order]
        changes = np.flatnonzero(np.diff(partitions) | np.diff(numbers)) + 1
        for low, high in pairwise([0, *changes.tolist(), len(order)]):
            partition, number = int(partitions[low]), int(numbers[low])
            chosen = order[low:high].tolist()
            group = Group(
                offsets[low:high].tolist(),
                list(map(self._values.__getitem__, chosen)),
                list(map(self._keys.__getitem__, chosen)),
            )
            size = sum(map(len, filter(None, group.values)))
            table = self._tables.tables[number]
            arrival = Arrival(
                partition,
                table,
                group.offsets,
                self._density.rows(table, group.values, size),
                size,
                self._timestamps[partition, number],
            )
            poll.arrivals.append(arrival)
            poll.groups[id(arrival)] = group
            poll.bytes += size
        poll.offsets = _by_partition(partitions, offsets)
        return poll


def _firsts(partitions: Integers, numbers: Integers) -> list[int]:
    """Where each (partition, table) stands first."""
    _, firsts = np.unique(_places(partitions, numbers), return_index=True)
    return firsts.tolist()  # type: ignore[no-any-return]


def _places(partitions: Integers, numbers: Integers) -> Any:
    """A number for each (partition, table)."""
    places = partitions * (int(numbers.max()) + 1) + numbers
    return places.astype(np.int16) if int(places.max()) < _RADIX else places


def _order(partitions: Integers, numbers: Integers) -> Any:
    """By partition and table; messages of the same stay in the order in which they came."""
    return np.argsort(_places(partitions, numbers), kind="stable")


def _by_partition(partitions: Integers, offsets: Integers) -> dict[int, list[int]]:
    """Ascending offsets of each partition; both arrays are sorted by partition."""
    cuts = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]
    return {
        int(partitions[low]): np.sort(offsets[low:high], kind="stable").tolist()
        for low, high in pairwise(cuts)
    }
