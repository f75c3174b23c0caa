"""How much a block's rows are, for whoever shares blocks out or sends several together."""

from __future__ import annotations

from relay.records_pb2 import Block


def rows_size(block: Block) -> int:
    """Return bytes of the rows: as producers sent them, or as columns where that is more.

    Rows that set few of many columns take many times as much as columns.
    """
    return max(block.row_bytes, block.decoded_bytes)
