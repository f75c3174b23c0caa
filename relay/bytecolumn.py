"""A column of bytes that grows: values copied once, from where the client has them.

Receives addresses and sizes, gives an Arrow array over the bytes copied.
"""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from relay.arrays import bits, buffer, grown

if TYPE_CHECKING:
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

NULL = -1
"""The size of a value or key that is not there at all."""
_LEAST_BYTES = 1 << 10
_LEAST_VALUES = 16
_KERNEL = "relay.messagekernel"
"""Its `gather` is used once somebody loaded it (relay.source, when there is much to do)."""


class ByteColumn:
    """Values, some of which may be null.

    Args:
        likely_bytes: what it will probably hold; it grows by itself if that is too little.
        likely_values: how many.
    """

    def __init__(self, likely_bytes: int = 0, likely_values: int = 0) -> None:
        self._data = np.empty(max(_LEAST_BYTES, likely_bytes), np.uint8)
        self._ends = np.zeros(max(_LEAST_VALUES, likely_values) + 1, np.int32)
        self._given = np.empty(len(self._ends), np.bool_)
        self.bytes = 0
        self._values = 0

    def __len__(self) -> int:
        return self._values

    def extend(self, places: Integers, sizes: Integers, chosen: Integers) -> None:
        """Copy these values.

        Args:
            places: addresses.
            sizes: bytes, or NULL.
            chosen: indices of those to copy, in their order.
        """
        added = int(np.maximum(sizes[chosen], 0).sum())
        self._data = grown(self._data, self.bytes, added)
        self._ends = grown(self._ends, self._values + 1, len(chosen))
        self._given = grown(self._given, self._values + 1, len(chosen))
        first = self._values + 1
        kernel: Any = sys.modules.get(_KERNEL)
        if kernel is None:
            self._gather(places[chosen], sizes[chosen], first)
        else:
            kernel.gather(
                places, sizes, chosen, self.bytes, self._data, first, self._ends, self._given
            )
        self.bytes += added
        self._values += len(chosen)

    def _gather(self, places: Integers, sizes: Integers, first: int) -> None:
        """As relay.messagekernel.gather: many times slower, and nothing to load."""
        last = first + len(places)
        self._given[first:last] = sizes != NULL
        sizes = np.maximum(sizes, 0)
        ends = self.bytes + np.cumsum(sizes)
        self._ends[first:last] = ends
        starts = self._data.ctypes.data + ends - sizes
        copies = map(ctypes.memmove, starts.tolist(), places.tolist(), sizes.tolist())
        deque(copies, maxlen=0)

    def array(self) -> pa.BinaryArray:
        """All values."""
        given = self._given[1 : self._values + 1]
        nulls = self._values - int(np.count_nonzero(given))
        buffers = [bits(given) if nulls else None, buffer(self._ends), buffer(self._data)]
        made: Any = pa.Array.from_buffers(pa.binary(), self._values, buffers, nulls)
        return made  # type: ignore[no-any-return]

    def __getitem__(self, at: int) -> bytes | None:
        if not self._given[at + 1]:
            return None
        return self._data[self._ends[at] : self._ends[at + 1]].tobytes()
