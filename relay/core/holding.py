"""What is held back: buffers of tables that cannot become blocks now, and who waits for them.

Receives the state, gives what may be sealed without them, and which partitions are not polled
since they hold too much of it. While ClickHouse is away a relay cannot know whether a table that
it has not met exists; and while brokers are away there may be nobody who takes a table's blocks.
Its messages stay in their buffers, so the floor stays before them; all other tables, and all other
partitions, go on.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping

from relay.core.state import Buffer, Partition, RelayState

SHARE = 2
"""What is held back may take one part in so many of the memory: the others need room for blocks."""
OFFSET_BYTES = 8
"""Of memory for each offset between floor and position."""


def sealable(
    state: RelayState, partition: Partition, only: str | None = None
) -> Mapping[str, Buffer]:
    """Return the partition's buffers, by table, that may be sealed now; or that of one table."""
    buffers = partition.buffers
    if only is not None:
        buffers = {only: buffers[only]} if only in buffers else {}
    return {t: b for t, b in buffers.items() if t not in state.held} if state.held else buffers


def each_sealable(state: RelayState) -> Iterator[tuple[int, ItemsView[str, Buffer]]]:
    """Yield each partition with its buffers that may be sealed now."""
    for index, partition in state.partitions.items():
        yield index, sealable(state, partition).items()


def held_back(state: RelayState, partition: Partition) -> list[Buffer]:
    """Return the partition's buffers that may not be sealed now."""
    if not state.held:
        return []
    return [buffer for table, buffer in partition.buffers.items() if table in state.held]


def next_floor(state: RelayState, partition: Partition) -> int:
    """Return the offset to which the partition's floor can move now."""
    offsets = (buffer.first_offset for buffer in held_back(state, partition))
    return min(offsets, default=partition.position)


def bytes_held_back(state: RelayState) -> int:
    """Return bytes of all buffers that may not be sealed now."""
    return sum(b.memory for p in state.partitions.values() for b in held_back(state, p))


def stalled_partitions(state: RelayState) -> frozenset[int]:
    """Return partitions that are not polled until what they hold back may be sealed.

    Those that would read too much again after a crash, or hold too many buffers; and all that hold
    any back, once that takes its share of the memory. Others are polled in any case.
    """
    if not state.held:
        return frozenset()
    limits = state.limits
    holding = {i: buffers for i, p in state.partitions.items() if (buffers := held_back(state, p))}
    offsets = sum(len(piece) for index in holding for piece in state.partitions[index].polled)
    crowded = bytes_held_back(state) + OFFSET_BYTES * offsets > limits.max_buffer_bytes // SHARE
    return frozenset(
        index
        for index, buffers in holding.items()
        if crowded
        or len(buffers) > limits.max_buffers
        or _again(state.partitions[index]) > limits.max_reread
    )


def _again(partition: Partition) -> int:
    """Offsets that a crash would read again."""
    return partition.position - partition.floor
