"""Decides what rows mean that carry the id of a block which the journal, as it was read, has not.

Receives when the audit began, and where the retained journal begins. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from relay.names import BlockId
from relay.records_pb2 import Commit
from relay.verify.anomaly import Kind
from relay.verify.history import NOTHING, History
from relay.verify.record import Finding
from relay.verify.recorded import SKEW_MS
from relay.verify.tally import Tally


@dataclass(frozen=True, slots=True)
class Known:
    """What the journal can know.

    Attributes:
        began_ms: Unix time before the journal was read.
        begins: by source partition whose first records are gone: the epoch of the oldest that is
            retained, and the source offset before which blocks may be older.
    """

    began_ms: float = float("inf")
    begins: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    def later(self, history: History) -> bool:
        """Whether the block was claimed since, so that it may have been sealed since."""
        return bool(history.claimed_ms) and history.claimed_ms >= self.began_ms - SKEW_MS

    def older(self, name: str) -> bool:
        """Whether the block may have been in a record that is gone."""
        try:
            block = BlockId.parse(name)
        except ValueError:
            return False
        epoch, offset = self.begins.get(block.partition, (-1, -1))
        return block.epoch < epoch or (block.epoch == epoch and block.first_offset < offset)


def begins(commits: Mapping[int, Iterable[Commit]]) -> dict[int, tuple[int, int]]:
    """Return `Known.begins` of the retained records, which are in order."""
    oldest = {partition: next(iter(some), None) for partition, some in commits.items()}
    return {
        partition: (one.epoch, max([one.previous_floor, *(mark.offset for mark in one.marks)]))
        for partition, one in oldest.items()
        if one is not None and one.n > 1
    }


def unlisted(
    rows: Mapping[str, int], ledger: Mapping[str, History], known: Known, tally: Tally
) -> Iterator[Finding]:
    """Judge rows by block id, none of which is in the journal as it was read.

    Args:
        rows: by block id.
        ledger: read after the rows were counted.
        known: what the journal can know.
        tally: gets what is not judged.
    """
    for name, count in rows.items():
        if known.later(ledger.get(name, NOTHING)):
            continue
        if known.older(name):
            tally.add("its journal records are gone, its rows are not judged", name, count)
            continue
        yield Finding(
            Kind.FOREIGN, f"{count} rows carry {name!r}, no block of the journal", _partition(name)
        )


def _partition(name: str) -> int:
    try:
        return BlockId.parse(name).partition
    except ValueError:
        return -1
