"""The blocks of the journal behind the ledger's position: sealed, and not settled for good.

Receives settings and the ledger, gives blocks and offsets. No Spark engine runs for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from loader.clickhouse.ledger import Ledger
from loader.journal.source import JOURNAL, JournalReader, Start
from loader.journal.startup import start, waited
from relay.config.settings import Settings
from relay.records_pb2 import Block


class SealedBlocks(NamedTuple):
    """What the journal holds.

    Attributes:
        begun: where a loader would begin.
        blocks: from there on.
        settled: by journal partition that the ledger knows, the offset before which every record is
            settled. A loader saves where the last record ends; markers of transactions, and what
            was aborted, may lie behind.
        ends: last stable offset by journal partition.
    """

    begun: Start
    blocks: list[Block]
    settled: Mapping[int, int]
    ends: Mapping[int, int]


def sealed(settings: Settings, ledger: Ledger | None) -> SealedBlocks:
    """List the blocks in the journal after the ledger's position.

    Raises:
        Unavailable, ContractBroken: as loader.journal.startup.start.
    """
    begun = waited(settings, lambda: start(settings, ledger))
    reader = JournalReader(begun)
    until = reader.ends()
    rows = list(reader.readBetweenOffsets(reader.initialOffset(), until))
    blocks = [Block.FromString(row[2]) for row in rows if row[2] is not None]
    ends = {int(p): end for p, end in until.items() if p != JOURNAL}
    unsettled = {row[0] for row in rows}
    settled = {p: at if p in unsettled else ends.get(p, at) for p, at in begun.positions.items()}
    return SealedBlocks(begun, blocks, settled, ends)
