"""Messages of one poll in columns, whoever fetched them.

Receives messages, gives for each its source partition, offset and table, and where in memory its
value and key are. A message's header alone names its table: the same message always belongs to the
same one, whatever the catalogue says at the time; what has no readable header belongs to "".

`relay.intake.bulk` fills such columns from librdkafka's own memory; here they are filled from the
messages that its Python binding makes. That takes twice the time, and loads nothing compiled: it is
for where little comes, and for versions of the binding that relay.intake.bulk does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from confluent_kafka import Message

from relay import names
from relay.arrow.byte_column import NULL, Gather, gather_one_by_one
from relay.kafka import librdkafka
from relay.names import NO_TABLE

Integers = npt.NDArray[np.int64]


Headers = list[tuple[str, bytes | None]]
"""Of one message: in the order written, names possibly repeated."""

_LEAST_SLOTS = 64


@dataclass(slots=True)
class Batch:
    """Some messages of one poll, none with an error, as arrays of equal length.

    Attributes:
        numbers: of their tables, in TableHeaders.
        values: addresses in memory that is as it is until the next poll.
        value_sizes: bytes, or NULL.
        keys: likewise.
        key_sizes: likewise.
        headers: by index, of those with other headers than the one that names a table.
        timestamp: a message's, by index; Unix milliseconds.
        memory: what holds values and keys.
        gather: copies values; compiled code, where that made the columns.
    """

    partitions: Integers
    offsets: Integers
    numbers: Integers
    values: Integers
    value_sizes: Integers
    keys: Integers
    key_sizes: Integers
    headers: dict[int, Headers]
    timestamp: Callable[[int], int]
    memory: Any = field(default=None, repr=False)
    gather: Gather = gather_one_by_one


def of_messages(messages: Sequence[Message], tables: TableHeaders) -> Batch:
    """Return columns of the binding's messages.

    The binding's getters are mapped in C: what runs per message here is no Python code.
    """
    count = len(messages)
    headers = _headers(messages)
    numbers, others = tables.numbers(headers)
    values, value_sizes, of_values = _addresses(list(map(Message.value, messages)))
    keys, key_sizes, of_keys = _addresses(list(map(Message.key, messages)))
    return Batch(
        np.fromiter(map(Message.partition, messages), np.int64, count),
        np.fromiter(map(Message.offset, messages), np.int64, count),
        numbers,
        values,
        value_sizes,
        keys,
        key_sizes,
        {index: headers[index] or [] for index in others},
        lambda index: messages[index].timestamp()[1],
        (of_values, of_keys),
    )


def _headers(messages: Sequence[Message]) -> list[Headers | None]:
    getter: Any = Message.headers  # typed for what may be produced too
    headers: list[Headers | None] = []
    try:
        headers.extend(map(getter, messages))
    except SystemError as error:  # a name is not UTF-8, of the message behind those that were read
        headers.append(librdkafka.mended_headers(messages[len(headers)], error))
        headers.extend(map(librdkafka.headers, messages[len(headers) :]))
    return headers


def _addresses(values: list[Any]) -> tuple[Integers, Integers, Any]:
    """Addresses and sizes, and the memory that they are in."""
    try:
        sizes = np.fromiter(map(len, values), np.int64, len(values))
        joined = b"".join(values)
    except TypeError:  # some are None
        sizes = np.array([NULL if value is None else len(value) for value in values], np.int64)
        joined = b"".join(filter(None, values))
    memory = np.frombuffer(joined or b"\0", np.uint8)
    ends = np.cumsum(np.maximum(sizes, 0))
    return memory.ctypes.data + ends - np.maximum(sizes, 0), sizes, memory


class Names(NamedTuple):
    """The tables known so far, as relay.intake.message_kernel looks one up."""

    joined: npt.NDArray[np.uint8]
    """Their names as bytes, one behind the other, by number."""
    ends: Integers
    """Of each name in `joined`."""
    slots: Integers
    """A hash table of numbers."""


class TableHeaders:
    """Remembers which table headers name, by number: topics have few tables and many messages."""

    _REMEMBERED = 10_000

    def __init__(self) -> None:
        self.tables: list[str] = [NO_TABLE]  # by number; number 0 is NO_TABLE
        self._numbers: dict[str, int] = {NO_TABLE: 0}
        self._plain: dict[tuple[tuple[str, bytes | None], ...], int] = {}
        self._names: Names | None = None

    @property
    def names(self) -> Names:
        """All tables known so far."""
        if self._names is None or len(self._names.ends) != len(self.tables):
            self._names = _lookup(self.tables)
        return self._names

    def numbers(self, headers: Sequence[Headers | None]) -> tuple[Integers, list[int]]:
        """Return each message's table by number, and which messages have other headers.

        Where all have the one header of a table seen before, no Python code runs per message.
        """
        try:
            known = map(self._plain.__getitem__, map(tuple, headers))  # type: ignore[arg-type]
            return np.fromiter(known, np.int64, len(headers)), []
        except (KeyError, TypeError):  # a new table, further headers, or none at all
            pairs = [self.number(of_message) for of_message in headers]
        others = [index for index, (_, plain) in enumerate(pairs) if not plain]
        return np.fromiter((number for number, _ in pairs), np.int64, len(pairs)), others

    def number(self, headers: Headers | None) -> tuple[int, bool]:
        """Return the table's number, and whether the header that names it stands alone."""
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

    def table(self, headers: Headers | None) -> str:
        """Return the table that exactly one header `table` names in plain UTF-8, or NO_TABLE."""
        values = [value for key, value in headers or () if key == names.TABLE_HEADER]
        try:
            text = (values[0] or b"").decode("utf-8") if len(values) == 1 else ""
        except UnicodeDecodeError:
            return NO_TABLE
        return text if names.is_table_name(text) else NO_TABLE

    def trim(self) -> None:
        """Forget all, between polls, when too many were invented; a number may change then."""
        if len(self.tables) > self._REMEMBERED:
            self.tables, self._numbers, self._plain = [NO_TABLE], {NO_TABLE: 0}, {}
            self._names = None


def _lookup(tables: Sequence[str]) -> Names:
    from relay.intake import message_kernel  # noqa: PLC0415 - compiled code, for those who use it

    written = [table.encode() for table in tables]
    joined = np.frombuffer(b"".join(written) + b"\0", np.uint8)
    ends = np.cumsum([len(name) for name in written])
    size = _LEAST_SLOTS
    while size < 2 * len(tables):
        size *= 2
    slots = np.full(size, message_kernel.UNKNOWN, np.int64)
    for number in range(1, len(tables)):
        start = int(ends[number - 1])
        at = joined.ctypes.data + start
        place = message_kernel.place_of(joined, ends, slots, at, int(ends[number]) - start)
        slots[place] = number
    return Names(joined, ends, slots)
