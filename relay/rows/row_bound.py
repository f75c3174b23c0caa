"""How many rows are decoded at a time: a wide row takes its columns' room whatever it sets.

Receives the types of a table's columns, gives bytes of a row; with a bound in bytes, gives how many
rows a block and a message may have. Pure.
"""

# pure

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

_OFFSET_BITS = 32
_VALID_BITS = 1
ALONE = 4
"""A message alone may take this many times what a block may: it cannot be cut, and as one of 1 MiB,
the brokers' default, with three values of a thousand columns in a row, it takes 221 MB."""
DENSE = 2
"""Rows that take no more than so many times their messages' bytes set their fields, and the memory
is the messages': a backlog of them is cut at ALONE only, since each cut costs a transaction."""


def row_bits(kind: pa.DataType) -> int:
    """Return bits that a row takes of a column in memory, whatever is in it.

    Of texts and lists that is where they end: what they hold takes room in the message as well.
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
    def rows(self) -> int:
        """Rows of a block, at least one, and no more than a message alone may have."""
        return min(self.alone, max(1, max(self.bytes, DENSE * self.messages) // self.row_bytes))

    @property
    def alone(self) -> int:
        """Rows of one message, whatever comes with it, at least one; it may be a block alone."""
        return max(1, ALONE * self.bytes // self.row_bytes)

    def why(self, rows: int) -> str:
        """Return why a message with so many is bad."""
        return (
            f"{rows:,} rows, and a message may have {self.alone:,}: each takes {self.row_bytes:,} "
            "bytes as columns, whatever fields it sets, and together they may take "
            f"{ALONE * self.bytes:,}"
        )
