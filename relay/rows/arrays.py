"""Small pieces of the way from numpy's arrays to Arrow's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def buffer(values: Any) -> pa.Buffer:
    """Arrow's buffer over the memory of an array or of bytes."""
    return pa.py_buffer(values)


def bits(given: Any) -> pa.Buffer:
    """A bit for each of these booleans, as Arrow has them."""
    return buffer(np.packbits(given, bitorder="little"))


def grown(array: Any, used: int, added: int) -> Any:
    """The array, or a copy of its used part with room for at least so much more."""
    if used + added <= len(array):
        return array
    larger = np.empty(max(used + added, 2 * len(array)), array.dtype)
    larger[:used] = array[:used]
    return larger
