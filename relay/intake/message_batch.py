"""Messages of one poll in columns, whoever fetched them.

Receives messages, gives for each its source partition, offset and table, and where in memory its
value and key are. `relay.intake.bulk` fills such columns from librdkafka's own memory; here they
are filled from the messages that its Python binding makes. That takes twice the time, and loads
nothing compiled: it is for where little comes, and for versions of the binding that
relay.intake.bulk does not know.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from confluent_kafka import Message

from relay.intake.buffers import NULL, gather_one_by_one

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from relay.intake.buffers import Gather
    from relay.intake.table_headers import Headers, TableHeaders

    Integers = npt.NDArray[np.int64]


@dataclass(slots=True)
class Batch:
    """Some messages of one poll, none with an error, as arrays of equal length.

    Attributes:
        numbers: of their tables, in relay.intake.table_headers.
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
    headers: dict[int, list[tuple[str, bytes | None]]]
    timestamp: Callable[[int], int]
    memory: Any = field(default=None, repr=False)
    gather: Gather = gather_one_by_one


def of_messages(messages: Sequence[Message], tables: TableHeaders) -> Batch:
    """Return columns of the binding's messages.

    The binding's getters are mapped in C: what runs per message here is no Python code.
    """
    count = len(messages)
    getter: Any = Message.headers  # typed for what may be produced too
    headers: list[Headers] = list(map(getter, messages))
    numbers, others = tables.numbers(headers)
    values, value_sizes, of_values = _bytes(list(map(Message.value, messages)))
    keys, key_sizes, of_keys = _bytes(list(map(Message.key, messages)))
    return Batch(
        np.fromiter(map(Message.partition, messages), np.int64, count),
        np.fromiter(map(Message.offset, messages), np.int64, count),
        numbers,
        values,
        value_sizes,
        keys,
        key_sizes,
        {at: headers[at] or [] for at in others},
        lambda at: messages[at].timestamp()[1],
        (of_values, of_keys),
    )


def _bytes(values: list[Any]) -> tuple[Integers, Integers, Any]:
    """Addresses and sizes, and the memory that they are in."""
    try:
        sizes = np.fromiter(map(len, values), np.int64, len(values))
        joined = b"".join(values)
    except TypeError:  # some are None
        sizes = np.array([NULL if one is None else len(one) for one in values], np.int64)
        joined = b"".join(filter(None, values))
    memory = np.frombuffer(joined or b"\0", np.uint8)
    ends = np.cumsum(np.maximum(sizes, 0))
    return memory.ctypes.data + ends - np.maximum(sizes, 0), sizes, memory
