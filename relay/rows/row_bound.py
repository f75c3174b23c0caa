"""How many rows are decoded at a time: a wide row takes its columns' room whatever it sets.

Receives the types of a table's columns, gives bytes of a row; with a bound in bytes, gives how many
rows a block and a message may have. Pure.
"""

# pure

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from relay.arrow.array_memory import Integers
from relay.core.block_bound import ALONE, block_bytes

_OFFSET_BITS = 32
_VALID_BITS = 1


def row_bits(kind: pa.DataType) -> int:
    """Return bits that a row takes of a column in memory, whatever is in it.

    Of texts and lists that is where they end: what texts and numbers in lists hold takes room in
    the message as well, and structs in lists are counted (relay.rows.list_elements).
    """
    parts: Any = kind
    if pa.types.is_struct(kind) or pa.types.is_union(kind):
        of_children = sum(row_bits(parts.field(at).type) for at in range(parts.num_fields))
        return _VALID_BITS + 8 * pa.types.is_union(kind) + of_children
    if pa.types.is_dictionary(kind):
        return row_bits(parts.index_type)
    if pa.types.is_null(kind):
        return 0
    try:
        return _VALID_BITS + int(parts.bit_width)
    except ValueError:  # values of many lengths
        return _VALID_BITS + _OFFSET_BITS


class RowBound(NamedTuple):
    """What rows of a table may take as columns.

    Attributes:
        row_bytes: that each takes at least.
        bytes: that a block's may take.
        messages: bytes of all messages that are given; 0: not known.
    """

    row_bytes: int
    bytes: int
    messages: int = 0

    @property
    def block(self) -> int:
        """Bytes of a block's rows, at least one row's."""
        return max(self.row_bytes, block_bytes(self.bytes, self.messages))

    @property
    def rows(self) -> int:
        """Rows of a block, at least one, and no more than a message alone may have."""
        return self.block // self.row_bytes

    @property
    def alone(self) -> int:
        """Rows of one message, whatever comes with it, at least one; it may be a block alone."""
        return max(1, ALONE * self.bytes // self.row_bytes)

    def sizes(self, rows: Integers, elements: Integers) -> Integers:
        """Return bytes of messages as columns, of the rows of each and its lists' elements."""
        return rows * self.row_bytes + elements

    def refused(self, rows: Integers, elements: Integers) -> npt.NDArray[np.bool_]:
        """Return which messages are too many rows, or too many elements, for any block."""
        large = self.sizes(rows, elements) > ALONE * self.bytes
        refused: npt.NDArray[np.bool_] = (rows > self.alone) | (large & (elements > 0))
        return refused

    def why(self, rows: int, elements: int = 0) -> str:
        """Return why a message with so many rows, and bytes of elements in lists, is bad."""
        most = f"{ALONE * self.bytes:,}"
        if elements:
            return (
                f"{rows:,} rows: with the elements of their lists they take "
                f"{rows * self.row_bytes + elements:,} bytes as columns, whatever fields these "
                f"set, and a message's may take {most}"
            )
        return (
            f"{rows:,} rows, and a message may have {self.alone:,}: each takes {self.row_bytes:,} "
            f"bytes as columns, whatever fields it sets, and together they may take {most}"
        )
