"""In which order blocks are loaded, where their list is cut, and which are read at once. Pure.

Receives blocks, gives their order in Kafka; of blocks in the order of their tables it gives places
and ranges, so that what one INSERT can take stays in one piece. A cut between two small blocks of a
table makes two INSERTs of them, which is most of what they cost. Of blocks in the order in which
they will be wanted it gives the offsets to read, by partition.
"""

# pure

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile, islice, pairwise

from loader.core.block_size import rows_size
from relay.blocks import placement
from relay.records_pb2 import Block

ONE_INSERT_BYTES = 8 << 20
"""Of a table's rows (loader.core.block_size) that an INSERT of several blocks may take."""
AT_ONCE, AT_ONCE_BYTES = 128, 8 << 20
"""So many blocks are read at once at most, and so much of rows, as producers sent them."""
BETWEEN = 8
"""Offsets between two blocks of a partition that are read as one stretch: transaction markers, and
few chunks. It is cheaper to skip more of them."""

Place = tuple[str, int]
"""Topic and partition."""
ChunkAt = tuple[Place, int, str]
"""Where a block's first chunk is, and under which key."""


def near(blocks: Iterable[Block]) -> list[Block]:
    """Return the blocks in the order in which they lie in Kafka: neighbours are read in one go."""
    return sorted(blocks, key=lambda b: (*placement.place(b), b.first_offset, b.share.first_row))


def pieces(blocks: Sequence[Block], number: int) -> list[range]:
    """Return the blocks' indices in about so many ranges of about as many, none of them empty."""
    cuts = {_nearest(blocks, len(blocks) * at // number) for at in range(1, number)}
    return [range(*ends) for ends in pairwise(sorted({0, *cuts, len(blocks)}))]


def front(blocks: Sequence[Block], most: int) -> int:
    """Return how many of the first `most` blocks to take, so that no table is cut if it can be."""
    if len(blocks) <= most:
        return len(blocks)
    return _run(blocks, most).start or most


def _nearest(blocks: Sequence[Block], at: int) -> int:
    """Return the place nearest to `at` that is not within what one INSERT can take."""
    run = _run(blocks, at)
    if sum(rows_size(blocks[index]) for index in run) > ONE_INSERT_BYTES:
        return at
    return run.start if at - run.start <= run.stop - at else run.stop


def _run(blocks: Sequence[Block], at: int) -> range:
    """Return the blocks of one table around the cut before `at`; empty where it cuts none."""
    table = blocks[at].table
    if at == 0 or blocks[at - 1].table != table:
        return range(at, at)
    start, stop = at, at
    while start and blocks[start - 1].table == table:
        start -= 1
    while stop < len(blocks) and blocks[stop].table == table:
        stop += 1
    return range(start, stop)


def together(block: Block, ahead: Sequence[Block]) -> dict[Place, range]:
    """Return the offsets to read, by partition: of this block and of those read with it."""
    offsets = {placement.place(block): range(block.first_offset, block.next_offset)}
    size = block.row_bytes
    for other in islice(of_other_chunks(block, ahead), AT_ONCE - 1):
        size += other.row_bytes
        if size > AT_ONCE_BYTES:
            break
        place = placement.place(other)
        before = offsets.get(place, range(other.first_offset, other.first_offset))
        if 0 <= other.first_offset - before.stop <= BETWEEN:
            offsets[place] = range(before.start, other.next_offset)
    return offsets


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
