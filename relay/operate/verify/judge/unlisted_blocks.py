"""Judges rows that carry the id of a block which the journal, as it was read, does not list.

Receives when the audit began, and what the retained journal spans. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from relay.names import BlockId
from relay.operate.verify.judge.anomaly import UnplacedAnomaly, foreign
from relay.operate.verify.judge.beginning import ToldFrom, told_from
from relay.operate.verify.judge.ledger_history import NOTHING, History
from relay.operate.verify.judge.server_records import SKEW_MS
from relay.operate.verify.judge.tally import UnjudgedTally
from relay.records_pb2 import Commit


@dataclass(frozen=True, slots=True)
class JournalReach:
    """What the journal can know.

    Attributes:
        began_ms: Unix time before the journal was read.
        begins: by source partition whose first records are gone: the epoch of the oldest that is
            retained, and from which source offsets on it and later ones tell of each table.
        epochs: by source partition, the least and the greatest of the records retained.
    """

    began_ms: float = float("inf")
    begins: Mapping[int, tuple[int, ToldFrom]] = field(default_factory=dict)
    epochs: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    def later(self, history: History) -> bool:
        """Return whether the block was claimed since, so that it may have been sealed since."""
        return bool(history.claimed_ms) and history.claimed_ms >= self.began_ms - SKEW_MS

    def older(self, name: str) -> bool:
        """Return whether the block may have been in a record that is gone."""
        try:
            block = BlockId.parse(name)
        except ValueError:
            return False
        if block.partition not in self.begins:
            return False
        epoch, told = self.begins[block.partition]
        if block.epoch != epoch:
            return block.epoch < epoch
        return block.first_offset < told.of(block.table)

    def elsewhere(self, name: str) -> bool:
        """Return whether the block can only be of another journal, deleted and made anew."""
        try:
            block = BlockId.parse(name)
        except ValueError:
            return False
        own = self.epochs.get(block.partition)
        # A journal begins all of its partitions with one epoch (relay.names.first_epoch).
        spans = [own] if own is not None else [*self.epochs.values()]
        if not spans:
            return False
        least, greatest = min(one[0] for one in spans), max(one[1] for one in spans)
        return not least <= block.epoch <= greatest


def known(began_ms: int, commits: Mapping[int, Sequence[Commit]]) -> JournalReach:
    """Return what the journal can know.

    Args:
        began_ms: Unix time before it was read.
        commits: retained, in order, by source partition.
    """
    begins, epochs = {}, {}
    for partition, some in commits.items():
        if some:
            one = some[0]
            epochs[partition] = (one.epoch, max(each.epoch for each in some))
            if one.n > 1:
                begins[partition] = (one.epoch, told_from(one))
    return JournalReach(began_ms, begins, epochs)


def unlisted(
    rows: Mapping[str, int],
    ledger: Mapping[str, History],
    known: JournalReach,
    tally: UnjudgedTally,
) -> Iterator[UnplacedAnomaly]:
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
            tally.add("its journal records were deleted, so its rows are not judged", name, count)
            continue
        if known.elsewhere(name):
            tally.add("it belongs to another journal, so its rows are not judged", name, count)
            continue
        yield foreign(
            f"{count} rows carry block id {name!r}, which no journal record lists",
            source_partition(name),
        )


def source_partition(name: str) -> int:
    """Return the source partition of the block of this id; -1: it is no block id."""
    try:
        return BlockId.parse(name).partition
    except ValueError:
        return -1
