"""A journal as long as one likes, from a short one of the relay's real core, lap after lap.

Receives a clean history, gives its records again and again, each lap shifted behind the last
one: at a forced flush point every buffer is empty, so the same may follow once more. Making a
record by the core costs ten times as much.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from relay.records_pb2 import Commit
from tests.verify.histories import History


def laps(history: History, records: int) -> Iterator[Commit]:
    """So many records: the history up to its last flush point, then shifted copies of that."""
    last = max(at for at, (_, commit) in enumerate(history) if commit.flush_point)
    lap = [commit for _, commit in history[: last + 1]]
    end = lap[-1]
    chunks = Counter[str]()
    for commit in lap:
        for block in commit.blocks:
            chunks[block.topic] = max(chunks[block.topic], block.next_offset)
    for at in range(records):
        times, index = divmod(at, len(lap))
        commit = Commit()
        commit.CopyFrom(lap[index])
        _shift(
            commit, times * len(lap), times * end.floor, {t: times * n for t, n in chunks.items()}
        )
        yield commit


def _shift(commit: Commit, n: int, floor: int, chunks: dict[str, int]) -> None:
    commit.n += n
    commit.previous_floor += floor
    commit.floor += floor
    commit.position += floor
    commit.reference += floor
    for mark in commit.marks:
        mark.offset += floor
    for part in (*commit.blocks, *commit.dead):
        part.first_source_offset += floor
        part.next_source_offset += floor
    for block in commit.blocks:
        block.first_offset += chunks[block.topic]
        block.next_offset += chunks[block.topic]
        prefix = block.id.rpartition(":")[0]
        block.id = f"{prefix}:{block.first_source_offset}"
