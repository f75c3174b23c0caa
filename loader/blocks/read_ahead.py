"""Chooses what to read of block topics at once: a block, and those that will be wanted next; pure.

Receives blocks in the order in which they will be wanted, gives offsets by partition.
"""

# pure

from __future__ import annotations

from itertools import dropwhile, islice
from typing import TYPE_CHECKING

from relay.blocks import placement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from relay.records_pb2 import Block

AT_ONCE, AT_ONCE_BYTES = 128, 8 << 20
"""So many blocks are read at once at most, and so much of rows, as producers sent them."""
BETWEEN = 8
"""Offsets between two blocks of a partition that are read as one stretch: transaction markers, and
few chunks. It is cheaper to skip more of them."""

Place = tuple[str, int]
"""Topic and partition."""
ChunkAt = tuple[Place, int, str]
"""Where a block's first chunk is, and under which key."""


def together(block: Block, ahead: Sequence[Block]) -> dict[Place, range]:
    """Return the offsets to read, by partition: of this block and of those read with it."""
    found = {placement.place(block): range(block.first_offset, block.next_offset)}
    size = block.row_bytes
    for other in islice(of_other_chunks(block, ahead), AT_ONCE - 1):
        size += other.row_bytes
        if size > AT_ONCE_BYTES:
            break
        place = placement.place(other)
        before = found.get(place, range(other.first_offset, other.first_offset))
        if 0 <= other.first_offset - before.stop <= BETWEEN:
            found[place] = range(before.start, other.next_offset)
    return found


def chunk_at(block: Block) -> ChunkAt:
    """Return where the block's first chunk is."""
    return placement.place(block), block.first_offset, placement.key(block)


def of_other_chunks(block: Block, ahead: Iterable[Block]) -> Iterator[Block]:
    """Yield the first block ahead of each chunk that does not hold this one."""
    seen = {chunk_at(block)}
    for other in ahead:
        if (at := chunk_at(other)) not in seen:
            seen.add(at)
            yield other


def after(block: Block, ahead: Sequence[Block]) -> Sequence[Block]:
    """Return those ahead without the first ones, which share a chunk with this one."""
    at = chunk_at(block)
    return list(dropwhile(lambda other: chunk_at(other) == at, ahead))
