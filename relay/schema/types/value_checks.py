"""Finds values of a protobuf-side column that its ClickHouse type cannot hold.

Receives a whole Arrow array, gives a mask with true where a value does not fit, or
None where all do. Nulls always fit. No Python per value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable

    Check = Callable[[pa.Array[Any]], pa.BooleanArray | None]


def range_check(low: int, high: int) -> Check:
    """Return numbers below `low` or above `high`."""

    def check(array: pa.Array[Any]) -> pa.BooleanArray | None:
        extremes: Any = pc.min_max(array)
        least, most = extremes["min"].as_py(), extremes["max"].as_py()
        if least is None or (least >= low and most <= high):
            return None
        scalars = (pa.scalar(low, array.type), pa.scalar(high, array.type))
        outside: Any = pc.or_(pc.less(array, scalars[0]), pc.greater(array, scalars[1]))
        return or_none(outside)

    return check


def length_check(most: int) -> Check:
    """Check for byte strings longer than `most` bytes."""

    def check(array: Any) -> pa.BooleanArray | None:
        lengths: Any = pc.binary_length(array)
        return or_none(pc.greater(lengths, pa.scalar(most, pa.int32())))

    return check


def names_check(allowed: list[str]) -> Check:
    """Return strings other than those `allowed`."""
    value_set = pa.array([*allowed, None], pa.string())

    def check(array: pa.Array[Any]) -> pa.BooleanArray | None:
        known: Any = pc.is_in(array, value_set=value_set)
        return None if pc.all(known).as_py() else or_none(pc.invert(known))

    return check


def or_none(bad: Any) -> pa.BooleanArray | None:
    """Return `bad` with nulls as false, or None where nothing is bad."""
    if not pc.any(bad).as_py():
        return None
    filled: pa.BooleanArray = pc.fill_null(bad, pa.scalar(value=False))
    return filled
