"""Cuts serialized rows of one table into messages.

Receives rows as one Arrow array and where each message ends; gives the messages' values
(`message RowBatch { repeated bytes rows = 1; }`). Whole arrays at a time; never looks into a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relay.arrow.array_memory import starts_of
from relay.rows.envelope import row_batch_handler, varint_sizes

if TYPE_CHECKING:
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]


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
