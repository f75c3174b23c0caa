"""Which source message each row of a block came from, as a header of the block's first chunk.

Receives the messages' offsets and how many rows each has, gives a few bytes, and back. With them a
loader can leave out single messages of a block whose rows the table refuses. Whole arrays at a
time: a block may hold a million messages.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

_HEADER = "messages"
HEADER_BYTES = 20
"""Of the header's name at most, where blocks share a chunk."""
_HEAD = struct.Struct("<qIBB")
"""First offset, messages, and bytes of a number in each of the two arrays behind it."""
_LEVEL = 1
"""Of zlib. Most messages are one offset behind the other and have as many rows as the others."""


class MessageRows(NamedTuple):
    """The messages of a block: ascending source offsets, and the rows of each, at least one."""

    offsets: Integers
    rows: Integers

    @property
    def ends(self) -> Integers:
        """One past the last row of each message."""
        return np.cumsum(self.rows)


def header(shared_by: int | None = None) -> str:
    """Return the header's name; blocks of earlier versions of the program have none.

    Where others share its chunk, each block has its own, by its source partition.
    """
    return _HEADER if shared_by is None else f"{_HEADER}.{shared_by}"


def encode(messages: MessageRows) -> bytes:
    """Return the header's value."""
    if not len(messages.offsets):
        return b""
    steps = np.diff(messages.offsets, prepend=messages.offsets[0])
    arrays = [_narrow(steps), _narrow(messages.rows)]
    sizes = [array.itemsize for array in arrays]
    head = _HEAD.pack(int(messages.offsets[0]), len(steps), *sizes)
    return zlib.compress(b"".join([head, *(array.tobytes() for array in arrays)]), _LEVEL)


def decode(value: bytes) -> MessageRows:
    """Return what `encode` was given.

    Raises:
        ValueError: it is no such value.
    """
    try:
        plain = zlib.decompress(value)
        first, count, of_step, of_rows = _HEAD.unpack_from(plain)
        steps = np.frombuffer(plain, f"<u{of_step}", count, _HEAD.size)
        rows = np.frombuffer(plain, f"<u{of_rows}", count, _HEAD.size + count * of_step)
    except (zlib.error, struct.error, TypeError, ValueError) as error:
        raise ValueError(f"the record is not a list of a block's messages: {error}") from error
    return MessageRows(first + np.cumsum(steps.astype(np.int64)), rows.astype(np.int64))


def _narrow(numbers: Integers) -> npt.NDArray[Any]:
    """The same numbers, little-endian, in as few bytes each as hold the greatest."""
    kind = np.min_scalar_type(int(numbers.max()))
    return numbers.astype(kind.newbyteorder("<"))
