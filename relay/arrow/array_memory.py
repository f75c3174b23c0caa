"""Make Arrow columns from the memory of numpy arrays, and look at the memory of Arrow columns.

Arrays are received and given over the same memory.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Integers: TypeAlias = npt.NDArray[np.int64]


def offsets_of(array: Any) -> Any:
    """Return where the values begin, and the end of the last; of the array, not of its buffer."""
    if not len(array):
        return np.zeros(1, np.int32)
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset :][: len(array) + 1]


def starts_of(counts: Any) -> Any:
    """Return where stretches of so many items begin, one behind the other, and the last one's end.

    Args:
        counts: of items in each stretch.
    """
    return np.concatenate([[0], np.cumsum(counts)])


def sums_of(values: Any, counts: Any) -> Any:
    """Return the sum of each stretch of so many values, one behind the other."""
    return np.diff(starts_of(values)[starts_of(counts)])


def bytes_in(array: Any) -> int:
    """Return bytes of all values of an array of texts or bytes."""
    offsets = offsets_of(array)
    return int(offsets[-1] - offsets[0])


def size_of(values: pa.ChunkedArray[Any]) -> int:
    """Return bytes of all values; pyarrow's own sums are slow for a few pieces."""
    return sum(map(bytes_in, values.chunks))


def buffer(values: Any) -> pa.Buffer:
    """Return Arrow's buffer over the memory of an array or of bytes."""
    return pa.py_buffer(values)


def bits(given: Any) -> pa.Buffer:
    """Return a bit for each of these booleans, as Arrow has them."""
    return buffer(np.packbits(given, bitorder="little"))


def grown(array: Any, used: int, added: int) -> Any:
    """Return the array, or a copy of its used part with room for at least so much more."""
    if used + added <= len(array):
        return array
    larger = np.empty(max(used + added, 2 * len(array)), array.dtype)
    larger[:used] = array[:used]
    return larger


def in_one_piece(values: pa.ChunkedArray[Any]) -> pa.BinaryArray:
    """Return the same values, copied if they lie in several pieces."""
    if values.num_chunks == 1:
        return values.chunk(0)  # type: ignore[return-value]
    return pa.concat_arrays([*values.chunks, pa.array([], pa.binary())])  # type: ignore[return-value]
