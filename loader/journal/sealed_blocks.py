"""The blocks of the journal behind the ledger's position: sealed, and not settled for good.

Receives settings and the ledger, gives blocks and offsets. No Spark engine runs for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from loader.journal.source import JOURNAL, JournalReader, Start
from loader.journal.startup import start, waited
from relay.records_pb2 import Block

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loader.clickhouse.ledger import Ledger
    from relay.config.settings import Settings


class SealedBlocks(NamedTuple):
    """What the journal holds.

    Attributes:
        begun: where a loader would begin.
        blocks: from there on.
        ends: last stable offset by journal partition.
    """

    begun: Start
    blocks: list[Block]
    ends: Mapping[int, int]


def sealed(settings: Settings, ledger: Ledger | None) -> SealedBlocks:
    """List the blocks in the journal after the ledger's position.

    Args:
        settings: of the app.
        ledger: of the app; None where there is none yet.

    Raises:
        Unavailable, ContractBroken: as loader.journal.startup.start.
    """
    begun = waited(settings, lambda: start(settings, ledger))
    reader = JournalReader(begun)
    ends = reader.ends()
    rows = reader.readBetweenOffsets(reader.initialOffset(), ends)
    blocks = [Block.FromString(row[2]) for row in rows if row[2] is not None]
    return SealedBlocks(begun, blocks, {int(p): end for p, end in ends.items() if p != JOURNAL})
