"""In which order blocks are loaded, and where their list is cut. Pure.

Receives blocks, gives their order in Kafka; of blocks in the order of their tables it gives places
and ranges, so that what one INSERT can take stays in one piece. A cut between two small blocks of a
table makes two INSERTs of them, which is most of what they cost.
"""

# pure

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from loader.core.block_size import rows_size
from relay.blocks.placement import place
from relay.records_pb2 import Block

ONE_INSERT_BYTES = 8 << 20
"""Of a table's rows (loader.core.block_size) that an INSERT of several blocks may take."""


def near(blocks: Iterable[Block]) -> list[Block]:
    """Return the blocks in the order in which they lie in Kafka: neighbours are read in one go."""
    return sorted(blocks, key=lambda b: (*place(b), b.first_offset, b.share.first_row))


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
    """The place nearest to `at` that is not within what one INSERT can take."""
    run = _run(blocks, at)
    if sum(rows_size(blocks[index]) for index in run) > ONE_INSERT_BYTES:
        return at
    return run.start if at - run.start <= run.stop - at else run.stop


def _run(blocks: Sequence[Block], at: int) -> range:
    """The neighbours of one table around the cut before `at`; empty where it cuts none."""
    table = blocks[at].table
    if at == 0 or blocks[at - 1].table != table:
        return range(at, at)
    start, stop = at, at
    while start and blocks[start - 1].table == table:
        start -= 1
    while stop < len(blocks) and blocks[stop].table == table:
        stop += 1
    return range(start, stop)
