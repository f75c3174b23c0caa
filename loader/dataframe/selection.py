"""Which sealed blocks a DataFrame is made of, and how they are shared out. Pure.

Receives journal records, partition by partition in order, gives blocks and groups of them.
"""

# pure

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loader.blocks.block_order import near
from relay.blocks import placement
from relay.blocks.journal import renames_offsets
from relay.records_pb2 import Block, Commit


@dataclass(frozen=True, slots=True)
class BlockSelection:
    """Which blocks a DataFrame is made of.

    Attributes:
        table: as database.table.
        since_ms: sealed then or later, in Unix milliseconds; None: from the first retained.
        until_ms: sealed before then; None: up to the last.
        block: id of the only one; empty: all.
    """

    table: str
    since_ms: int | None = None
    until_ms: int | None = None
    block: str = ""

    def takes(self, block: Block) -> bool:
        """Return whether the block is one of them."""
        return (
            block.table == self.table
            and self.block in {"", block.id}
            and (self.since_ms is None or block.sealed_at_ms >= self.since_ms)
            and (self.until_ms is None or block.sealed_at_ms < self.until_ms)
        )


def concerns(commit: Commit, table: str) -> bool:
    """Return whether the record has blocks of the table, or says which of them count."""
    blocks = any(block.table == table for block in commit.blocks)
    rewound = any(start.table == table for start in commit.rewind.starts)
    return blocks or rewound or renames_offsets(commit.accept)


def live(records: Iterable[tuple[int, Commit]], table: str) -> list[Block]:
    """Return the table's blocks that no rewind has replaced, in order of the records.

    The records come with their partition, each partition's in the journal's order.
    """
    settled: defaultdict[int, list[Block]] = defaultdict(list)  # of a source log that is gone
    current: defaultdict[int, list[Block]] = defaultdict(list)
    for partition, commit in records:
        if renames_offsets(commit.accept):
            settled[partition] += current.pop(partition, [])
        for start in commit.rewind.starts:
            if start.table == table:
                blocks = current[partition]
                blocks[:] = [b for b in blocks if b.first_source_offset < start.offset]
        current[partition] += [block for block in commit.blocks if block.table == table]
    partitions = sorted({*settled, *current})
    return [block for p in partitions for block in [*settled[p], *current[p]]]


def newest(blocks: Sequence[Block]) -> Block | None:
    """Return the block whose columns are the DataFrame's; of several alike, the last."""
    ranked = reversed(blocks)
    return max(ranked, key=lambda block: (block.schema_version, block.sealed_at_ms), default=None)


def groups(blocks: Iterable[Block], row_bytes: int) -> list[list[Block]]:
    """Return the blocks by neighbours in Kafka, each group of about so many bytes at most.

    Bytes are those of the rows as producers sent them; a larger block is a group by itself.
    """
    made: list[list[Block]] = []
    size = 0
    for block in near(blocks):
        beside = made and placement.place(made[-1][-1]) == placement.place(block)
        if beside and size + block.row_bytes <= row_bytes:
            made[-1].append(block)
            size += block.row_bytes
        else:
            made.append([block])
            size = block.row_bytes
    return made
