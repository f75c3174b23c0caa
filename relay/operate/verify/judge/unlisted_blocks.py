"""Judges rows that carry the id of a block which the journal, as read, does not list. Pure."""

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

    def older(self, block: BlockId) -> bool:
        """Return whether the block may have been in a record that is gone."""
        if block.partition not in self.begins:
            return False
        epoch, told = self.begins[block.partition]
        if block.epoch != epoch:
            return block.epoch < epoch
        return block.first_offset < told.of(block.table)

    def elsewhere(self, block: BlockId) -> bool:
        """Return whether the block can only be of another journal, deleted and made anew."""
        own = self.epochs.get(block.partition)
        # A journal begins all of its partitions with one epoch (relay.names.first_epoch).
        spans = [own] if own is not None else [*self.epochs.values()]
        if not spans:
            return False
        least, greatest = min(span[0] for span in spans), max(span[1] for span in spans)
        return not least <= block.epoch <= greatest


def known(began_ms: int, commits: Mapping[int, Sequence[Commit]]) -> JournalReach:
    """Return what the journal can know, of its retained records in order by source partition."""
    begins, epochs = {}, {}
    for partition, records in commits.items():
        if records:
            oldest = records[0]
            epochs[partition] = (oldest.epoch, max(commit.epoch for commit in records))
            if oldest.n > 1:
                begins[partition] = (oldest.epoch, told_from(oldest))
    return JournalReach(began_ms, begins, epochs)


def unlisted(
    rows: Mapping[str, int],
    ledger: Mapping[str, History],
    known: JournalReach,
    tally: UnjudgedTally,
) -> Iterator[UnplacedAnomaly]:
    """Judge rows by block id, none of which is in the journal as it was read.

    The ledger was read after the rows were counted; `tally` gets what is not judged.
    """
    for name, count in rows.items():
        if known.later(ledger.get(name, NOTHING)):
            continue
        block = _parsed(name)
        if block is not None and known.older(block):
            tally.add("its journal records were deleted, so its rows are not judged", name, count)
        elif block is not None and known.elsewhere(block):
            tally.add("it belongs to another journal, so its rows are not judged", name, count)
        else:
            text = f"{count} rows carry block id {name!r}, which no journal record lists"
            yield foreign(text, source_partition(name))


def source_partition(name: str) -> int:
    """Return the source partition of the block of this id; -1: it is no block id."""
    block = _parsed(name)
    return -1 if block is None else block.partition


def _parsed(name: str) -> BlockId | None:
    try:
        return BlockId.parse(name)
    except ValueError:
        return None
