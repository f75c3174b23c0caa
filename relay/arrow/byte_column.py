"""A column of bytes that grows: the messages' values, or their keys, until they are sealed.

Receives values as addresses and sizes, copies them once, from where they are, and gives Arrow
arrays over the bytes copied. They lie in pieces, and a value in one of them: one array that outgrew
its memory would be copied whole, into pages that the kernel has to clear first. With 200 tables
that was a seventh of a relay's time.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from relay.arrow.array_memory import Integers, bits, buffer, grown

Bytes = npt.NDArray[np.uint8]
Gather = Callable[[Integers, Integers, Integers, int, Bytes, int, npt.NDArray[np.int32], Any], None]


NULL = -1
"""The size of a value that is not there at all."""
_LEAST_BITS, _MOST_BITS = 10, 19
"""A piece has two to the power of so many bytes: about as many as the column has, so that little
of the last is in vain; of few sizes, so that who allocates finds one that fits among those freed.
A larger value has a piece for itself."""
_LEAST_VALUES = 16


class _BytePiece(NamedTuple):
    first: int
    """The value that it begins with."""
    data: npt.NDArray[np.uint8]


def gather_one_by_one(  # noqa: PLR0913, PLR0917 - as the compiled one
    places: Integers,
    sizes: Integers,
    chosen: Integers,
    at: int,
    data: Bytes,
    first: int,
    ends: npt.NDArray[np.int32],
    given: Any,
) -> None:
    """Copy values as relay.intake.message_kernel.gather: many times slower, and nothing to load."""
    last = first + len(chosen)
    given[first:last] = sizes[chosen] != NULL
    lengths = np.maximum(sizes[chosen], 0)
    ends[first:last] = behind = at + np.cumsum(lengths)
    starts = data.ctypes.data + behind - lengths
    copies = map(ctypes.memmove, starts.tolist(), places[chosen].tolist(), lengths.tolist())
    deque(copies, maxlen=0)


class ByteColumn:
    """A column of bytes that grows: values, some of which may be null."""

    def __init__(self) -> None:
        self._pieces: list[_BytePiece] = []
        self._room = 0
        self._ends = np.empty(_LEAST_VALUES, np.int32)
        self._given = np.empty(_LEAST_VALUES, np.bool_)
        self.bytes = 0
        self._values = 0
        self._begin = 0

    def __len__(self) -> int:
        return self._values - self._begin

    def drop(self, values: int) -> None:
        """Forget the first of them, with the pieces that hold no other."""
        self._begin += values
        kept = self._piece_of(self._begin)
        first = self._pieces[kept].first
        gone = sum(int(self._ends[piece.first - 1]) for piece in self._pieces[1 : kept + 1])
        self._pieces = [piece._replace(first=piece.first - first) for piece in self._pieces[kept:]]
        self._ends = self._ends[first : self._values].copy()
        self._given = self._given[first : self._values].copy()
        self.bytes -= gone
        self._values -= first
        self._begin -= first

    def extend(
        self,
        places: Integers,
        sizes: Integers,
        chosen: Integers,
        gather: Gather = gather_one_by_one,
    ) -> None:
        """Copy these values.

        Args:
            places: addresses.
            sizes: bytes, or NULL.
            chosen: indices of those to copy, in their order.
            gather: copies them.
        """
        take = partial(self._copy, gather, places, sizes)
        self._ends = grown(self._ends, self._values, len(chosen))
        self._given = grown(self._given, self._values, len(chosen))
        until = np.cumsum(np.maximum(sizes[chosen], 0))
        done, copied = 0, 0
        while done < len(chosen):
            left = int(until[-1]) - copied
            if left <= self._room and self._pieces:
                take(chosen[done:], left)
                return
            fitting = int(np.searchsorted(until, copied + self._room, "right"))
            if fitting > done and self._pieces:
                behind = int(until[fitting - 1])
                take(chosen[done:fitting], behind - copied)
                done, copied = fitting, behind
            self._open(int(until[done]) - copied, left)

    def _open(self, least: int, left: int) -> None:
        """Another piece, with room for at least so many bytes, of those that are left."""
        power = min(max(left, self.bytes).bit_length(), _MOST_BITS)
        size = max(least, 1 << max(power, _LEAST_BITS))
        self._pieces.append(_BytePiece(self._values, np.empty(size, np.uint8)))
        self._room = size

    def _copy(
        self, gather: Gather, places: Integers, sizes: Integers, chosen: Integers, added: int
    ) -> None:
        """Values of so many bytes, for which the last piece has room."""
        data, first = self._pieces[-1].data, self._values
        at = len(data) - self._room
        gather(places, sizes, chosen, at, data, first, self._ends, self._given)
        self._room -= added
        self.bytes += added
        self._values += len(chosen)

    def array(self) -> pa.ChunkedArray[Any]:
        """Return all values, an array for each piece."""
        arrays = [self._of(*both) for both in zip(self._pieces, self._behind(), strict=True)]
        return pa.chunked_array(arrays, pa.binary())

    def _of(self, piece: _BytePiece, behind: int) -> pa.Array[Any]:
        low = max(piece.first, self._begin)
        offsets = np.empty(behind - low + 1, np.int32)
        offsets[0] = self._start(piece, low)
        offsets[1:] = self._ends[low:behind]
        given = self._given[low:behind]
        nulls = len(given) - int(np.count_nonzero(given))
        buffers = [bits(given) if nulls else None, buffer(offsets), buffer(piece.data)]
        return pa.Array.from_buffers(pa.binary(), len(given), buffers, nulls)

    def __getitem__(self, at: int) -> bytes | None:
        at += self._begin
        if not self._given[at]:
            return None
        piece = self._pieces[self._piece_of(at)]
        return piece.data[self._start(piece, at) : self._ends[at]].tobytes()

    def size(self, values: int) -> int:
        """Return bytes of so many of the first values."""
        end, size = self._begin + values, 0
        for piece, behind in zip(self._pieces, self._behind(), strict=True):
            low, high = max(piece.first, self._begin), min(behind, end)
            if low < high:
                size += int(self._ends[high - 1]) - self._start(piece, low)
        return size

    def _behind(self) -> list[int]:
        """The value behind the last of each piece."""
        return [piece.first for piece in self._pieces[1:]] + [self._values]

    def _piece_of(self, at: int) -> int:
        """Where a value lies."""
        return bisect_right(self._pieces, at, key=lambda piece: piece.first) - 1

    def _start(self, piece: _BytePiece, at: int) -> int:
        """Where in its piece a value begins."""
        return 0 if at == piece.first else int(self._ends[at - 1])
