"""What the ledger knows of a micro-batch's blocks, and whether it still knows what it knew.

Receives rows of loader.journal.source, gives the blocks that are to be attempted. A person may
restore, empty or replace the ledger under a running loader; then nothing is written that would
hide what is missing, and the run ends, so that the next one begins where the ledger stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from loader.clickhouse.forgotten_blocks import Forgotten, Place
from loader.clickhouse.ledger import Ledger
from loader.clickhouse.running_statements import Running
from loader.core.entries import NewEntry
from loader.core.plan import Entry, doubt, settled
from loader.core.positions import Noted
from loader.journal.source import Start
from relay.errors import Unavailable
from relay.records_pb2 import Block

CLAIM_SECONDS = 86_400
"""After the ledger was read, a block is claimed no later than this. A loader that was paused for
longer, in the midst of a micro-batch, reads the ledger again: entries of blocks that others have
settled since may have been removed as old ones (loader.operate.clean_plan, which waits for
longer)."""


class BatchBlocks(NamedTuple):
    """The blocks of a micro-batch.

    Attributes:
        blocks: how many there are.
        left: those that are not settled, by id.
        new: ids of those without an entry.
        until: claims on them are taken no later, in Unix seconds by the server's clock.
    """

    blocks: int
    left: dict[str, Block]
    new: frozenset[str]
    until: int


class KnownBlocks:
    """Compare the blocks and positions of one run with the ledger."""

    def __init__(self, ledger: Ledger, start: Start, stamp: str) -> None:
        self._ledger, self._journal = ledger, start.journal
        self._positions = dict(start.positions)
        running = Running(ledger.client, start.settings.clickhouse)
        self._forgotten = Forgotten(ledger, stamp, start.unsure, running)
        self._noted = Noted()

    def look(self, rows: Sequence[Any]) -> BatchBlocks:
        """Return which blocks of these rows are not settled.

        Raises:
            Unavailable, Refused: as ClickHouse answers.
        """
        sealed = [
            (row.partition, row.offset, Block.FromString(bytes(row.block)))
            for row in rows
            if row.block is not None
        ]
        known = self._ledger.kept_entries([block for *_, block in sealed])
        self._ledger.check_seen()  # behind it: what was hidden then is still hidden
        # Of a partition that is new there is no position, so that all that is noted is read.
        floors = dict.fromkeys((row.partition for row in rows), 0) | self._positions
        self._noted = self._ledger.noted_from(self._journal, floors)
        position = self._noted.of(self._journal)
        # A lost checkpoint is cheap: what is settled is passed over. Of what lies before the
        # position, the ledger may have been cleaned.
        left = [
            (partition, offset, block)
            for partition, offset, block in sealed
            if offset >= position.get(partition, 0) and settled(known.get(block.id, ())) is None
        ]
        until = self._noted.now + CLAIM_SECONDS
        doubtful = self._doubt(left, known, until)
        new = {block.id for *_, block in left if block.id not in known} - doubtful
        left_by_id = {block.id: block for *_, block in left}
        return BatchBlocks(len(sealed), left_by_id, frozenset(new), until)

    def _doubt(
        self, left: Sequence[Place], known: Mapping[str, Sequence[Entry]], until: int
    ) -> set[str]:
        """Record for which of these blocks the ledger may have lost entries."""
        some = [one for one in left if self._forgotten.asks(one, known.get(one[2].id, ()))]
        doubtful = self._forgotten.among(some)
        rows = [
            NewEntry(block, doubt(block.rows, lost=self._forgotten.lost(partition, offset)))
            for partition, offset, block in some
            if block.id in doubtful
        ]
        self._ledger.write(rows, until)
        return doubtful

    def settled(self, positions: Mapping[int, int]) -> None:
        """Save positions if the ledger still has the earlier ones."""
        self._ledger.save_positions(self._journal, positions, self._positions)
        self._positions |= positions

    def look_again(self) -> None:
        """Read the positions alone, for `check`."""
        self._noted = self._ledger.noted_from(self._journal, self._positions)
        self._ledger.check_seen()

    def check(self) -> None:
        """Compare the positions read last with those that were saved.

        Raises:
            Unavailable: the ledger no longer has them.
        """
        now = self._noted.of(self._journal)
        for partition, offset in sorted(self._positions.items()):
            if now.get(partition, -1) < offset:
                raise Unavailable(
                    f"ClickHouse went back while the loader ran: the ledger {self._ledger.name} "
                    f"stood at {offset} in partition {partition} of the journal, now it "
                    + (f"stands at {now[partition]}" if partition in now else "has no position"),
                    "Start the loader again: it begins where the ledger stands. If nobody "
                    "restored or emptied ClickHouse, another server answers at its address.",
                )
