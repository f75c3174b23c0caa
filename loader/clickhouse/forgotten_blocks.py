"""Which blocks may be in their tables though the ledger has no entry of them.

Receives the blocks of a micro-batch, gives the ids of those that loader.core.plan has to ask about
before it inserts: those before the journal's end of then, but for blocks of a table that is empty,
and for those of which no row is there and no INSERT is in the query log. Of the others
loader.core.plan asks more. Where nothing is known of a block it is inserted, since it may as well
be a first start, or a restored ClickHouse whose tables and ledger are of one moment; where a person
says that the ledger was lost, it is parked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from clickhouse_connect.driver.exceptions import ClickHouseError

from loader.clickhouse.client import failure
from loader.clickhouse.running_statements import Running
from loader.clickhouse.tables import Tables, Target
from loader.core.entries import NewEntry, earliest
from loader.core.plan import Entry, doubt
from loader.core.positions import Unsure
from relay.clickhouse.quoting import quoted_table
from relay.errors import Refused, Unavailable
from relay.records_pb2 import Block

if TYPE_CHECKING:
    from loader.clickhouse.ledger import Ledger
    from relay.config.settings import Settings

Place = tuple[int, int, Block]
"""Journal partition, offset, and a block that is there."""


class Forgotten:
    """Find blocks of one run of which the ledger may have lost entries.

    Args:
        ledger: of the app; its client asks.
        stamp: name of the block-id column.
        unsure: by journal partition.
        running: asks all servers what runs; else the ledger's is the only one.

    Raises (every method): Unavailable, Refused.
    """

    def __init__(
        self,
        ledger: Ledger,
        stamp: str,
        unsure: Mapping[int, Unsure],
        running: Running | None = None,
    ) -> None:
        self._ledger, self._stamp, self._unsure = ledger, stamp, unsure
        self._running = running or Running(ledger.client)
        self._tables = Tables(ledger.client, stamp)
        self._empty: set[str] = set()

    @classmethod
    def of_waiting(cls, ledger: Ledger, settings: Settings) -> Forgotten:
        """Return what finds them among blocks that wait in the ledger, of whichever partition."""
        running = Running(ledger.client, settings.clickhouse)
        return cls(ledger, settings.loader.block_column, {}, running)

    def lost(self, partition: int, offset: int) -> bool:
        """Return whether a person says that the ledger had entries of these blocks."""
        return offset < self._unsure.get(partition, Unsure(0)).lost

    def asks(self, place: Place, entries: Sequence[Entry]) -> bool:
        """Return whether the ledger, which has these entries of a block, may have lost others."""
        partition, offset, _ = place
        return self._unsure.get(partition, Unsure(0)).asks(offset, entries)

    def doubt(self, waiting: Iterable[Block]) -> None:
        """Record in the ledger which of these blocks that wait may be in their tables."""
        blocks = list(waiting)
        doubtful = self.among((block.partition, 0, block) for block in blocks)
        self._ledger.write(
            [
                NewEntry(block, doubt(block.rows, lost=False))
                for block in blocks
                if block.id in doubtful
            ]
        )

    def among(self, places: Iterable[Place]) -> set[str]:
        """Return the ids of blocks, of those that `asks`, that may be in their tables."""
        by_table: defaultdict[tuple[str, bool], dict[str, Block]] = defaultdict(dict)
        for partition, offset, block in places:
            if block.table not in self._empty:
                by_table[block.table, self.lost(partition, offset)][block.id] = block
        if not by_table:
            return set()
        runs = self._running.of_app(self._ledger.app, {table for table, _ in by_table})
        doubtful = {block for blocks in by_table.values() for block in blocks} & runs.blocks
        unseen: dict[str, Block] = {}
        nothing_runs = not runs.blocks
        for (table, lost), blocks in sorted(by_table.items()):
            if table in runs.unknown:  # what runs there may leave rows: the attempt waits for it
                doubtful |= blocks.keys()
                continue
            ask = partial(self._among, table, blocks, unseen, lost=lost, nothing_runs=nothing_runs)
            try:
                # A person says that the ledger was lost: then a doubt parks blocks whose table may
                # turn out to be empty, which no trouble that passes may do.
                doubtful |= ask() if lost else self._or_all(blocks, ask)
            except Refused:  # one table's trouble: the attempt at its blocks meets it again
                doubtful |= blocks.keys()
        if unseen:
            since_ms = min(earliest(block) for block in unseen.values())
            recorded = partial(self._tables.evidence.recorded, unseen, since_ms)
            doubtful |= self._or_all(unseen, recorded)
        return doubtful

    def _or_all(self, blocks: Collection[str], ask: Callable[[], Collection[str]]) -> set[str]:
        """Return which of the blocks a question finds; all of them where it alone gets no answer.

        Then the attempt at them meets the trouble again, and nothing else waits for it. A server
        that answers nothing is waited for: all blocks would be in doubt.
        """
        try:
            return set(ask())
        except Unavailable:
            self._ask("SELECT 1")
            return set(blocks)

    def _among(
        self,
        table: str,
        blocks: Mapping[str, Block],
        unseen: dict[str, Block],
        *,
        lost: bool,
        nothing_runs: bool,
    ) -> set[str]:
        """Those that are in their table, or may be; others go to `unseen`, if rows prove little."""
        target = self._tables.look({table}).get(table)
        if target is None:
            self._tables.check_gone(table)
            return set()
        evidence = self._tables.evidence
        if evidence.shown_only(table):  # nor does a count say that a block is not there
            return set(blocks)
        # A part that was replaced left its token, under which its block would not come again.
        since_ms = min(map(earliest, blocks.values()))
        windowed = target.nature.is_countable and target.nature.window.parts > 0
        orphans = windowed and evidence.vanished(table, since_ms)
        # Of what merges, expires or passes through, an empty table says nothing.
        any_row = f"SELECT 1 FROM {quoted_table(table)} LIMIT 1"  # noqa: S608 - quoted
        if target.nature.is_countable and not orphans and not self._ask(any_row):
            if nothing_runs:  # what still runs may leave rows of blocks of later batches
                self._empty.add(table)
            return set()
        counted = partial(self._tables.counted, table, blocks)
        if target.counts(self._stamp):
            present = self._or_all(blocks, counted)
            if orphans:
                unseen.update({block: blocks[block] for block in blocks.keys() - present})
            return present
        if lost:
            return set(blocks)
        unseen.update(blocks)
        if not target.stamped(self._stamp):
            return set()
        return self._or_all(blocks, partial(self._counted_whole, target, blocks))

    def _counted_whole(self, target: Target, blocks: Mapping[str, Block]) -> Collection[str]:
        """Those with rows; all of them where rows may come that a replica has still to fetch."""
        counted, behind = self._tables.counted_whole(list(blocks.values()), target.nature)
        return blocks if behind else counted

    def _ask(self, sql: str) -> Sequence[Any]:
        try:
            return self._ledger.client.query(sql).result_rows
        except ClickHouseError as error:
            raise failure(error, "asking which blocks the tables have already") from error
