"""Columns that relay.rows.flat_kernel fills, and that grow while it does.

Receives what each column holds, gives the kernel room to write and, in the end, Arrow's buffers.
How much room there is at first is an expectation; no result depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from relay.arrow.array_memory import bits, buffer, grown
from relay.rows.flat_kernel import BOOL, BYTES, SPARE_BYTES

_STORED = (np.uint64, np.uint32, np.uint32, np.uint8, np.uint64, np.uint32, np.int32, np.int32)
"""What a value is as the kernel writes it, in the order of its kinds: of bytes, where they end."""
_LEAST_ROWS = 64
_SLACK = 1.125


class Density(NamedTuple):
    """What a byte of messages becomes."""

    rows: float
    bytes: tuple[float, ...]
    """In each column; 0 where it has numbers."""

    @classmethod
    def guess(cls, columns: int) -> Density:
        """Guess before any message was read."""
        return cls(1 / 64, (1 / columns,) * columns)


class Sinks:
    """Columns of as many rows each.

    Args:
        kinds: of relay.rows.flat_kernel, of each column.
        words: of 64 bits, that say which columns a row has; `given` has them of each row.
        density: expected.
    """

    def __init__(self, kinds: Sequence[int], words: int, density: Density) -> None:
        self._kinds = kinds
        self._density = density
        self.given: npt.NDArray[np.uint64] = np.zeros((0, words), np.uint64)
        self._values: list[Any] = [np.zeros(1, _STORED[kind]) for kind in kinds]
        self._bytes = [np.zeros(0, np.uint8) for _ in kinds]

    def grow(self, rows: int, longest: int, left: int, most: int, *, short_of_rows: bool) -> None:
        """Make room for messages of `left` bytes, or at least for what comes nearer to that.

        Args:
            rows: that are there.
            longest: bytes of the longest message; columns of bytes have room for it afterwards.
            left: bytes of all messages that are not read yet.
            most: rows that there is ever room for.
            short_of_rows: the next message has more than there is room for.
        """
        left = int(left * _SLACK)
        room = rows + _LEAST_ROWS + int(left * self._density.rows)
        if (room > len(self.given) or short_of_rows) and len(self.given) < most:
            room = min(max(room, 2 * len(self.given)), most)
            given = np.zeros((room, self.given.shape[1]), np.uint64)
            given[:rows] = self.given[:rows]
            self.given = given
            self._values = [grown(values, rows + 1, room - rows) for values in self._values]
        for at, kind in enumerate(self._kinds):
            if kind >= BYTES:
                more = longest + SPARE_BYTES + int(left * self._density.bytes[at])
                self._bytes[at] = grown(self._bytes[at], int(self._values[at][rows]), more)

    def table(self) -> npt.NDArray[np.int64]:
        """Return the table as relay.rows.flat_kernel takes it; until the next growth."""
        places = [
            (values.ctypes.data, held.ctypes.data, kind, len(held))
            for values, held, kind in zip(self._values, self._bytes, self._kinds, strict=True)
        ]
        return np.array(places, np.int64)

    def buffers(self, column: int, rows: int) -> list[pa.Buffer]:
        """Return Arrow's buffers, but for the one that says which values are there."""
        values, kind = self._values[column], self._kinds[column]
        if kind >= BYTES:
            return [buffer(values[: rows + 1]), buffer(self._bytes[column][: values[rows]])]
        if kind == BOOL:
            return [bits(values[:rows])]
        return [buffer(values[:rows])]

    def density(self, rows: int, size: int) -> Density:
        """Return the density of messages of `size` bytes that became so many rows."""
        ends = [
            int(values[rows]) if kind >= BYTES else 0
            for values, kind in zip(self._values, self._kinds, strict=True)
        ]
        return Density(rows / size, tuple(end / size for end in ends))
