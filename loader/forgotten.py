"""Which blocks may be in their tables though the ledger has no entry of them.

Receives the blocks of a micro-batch, gives the ids of those that loader.plan has to ask about
before it inserts: those before the journal's end of then, but for blocks of a table that is empty,
and for those of which no row is there, where counting rows proves that. Of the others loader.plan
asks more. Where nothing is known of a block it is inserted, since it may as well be a first start,
or a restored ClickHouse whose tables and ledger are of one moment; where a person says that the
ledger was lost, it is parked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from clickhouse_connect.driver.exceptions import ClickHouseError

from loader.clickhouse import failure, quoted_table
from loader.tables import Tables
from relay.errors import Refused

if TYPE_CHECKING:
    from loader.ledger import Ledger
    from loader.positions import Unsure
    from relay.records_pb2 import Block


class Forgotten:
    """Of one run of the loader.

    Attributes:
        lost: a person says that the ledger was lost.

    Args:
        ledger: of the app; its client asks.
        stamp: name of the block-id column.
        unsure: by journal partition.
    """

    def __init__(self, ledger: Ledger, stamp: str, unsure: Mapping[int, Unsure]) -> None:
        self._ledger, self._stamp, self._unsure = ledger, stamp, unsure
        self._tables = Tables(ledger.client, stamp)
        self._empty: set[str] = set()
        self.lost = any(one.lost for one in unsure.values())

    def among(self, new: Iterable[tuple[int, int, Block]]) -> set[str]:
        """Return the ids of those that have to be asked about.

        Args:
            new: journal partition, offset and block, of which the ledger has no entry.

        Raises:
            Unavailable, Refused: as ClickHouse answers.
        """
        doubtful: dict[str, set[str]] = {}
        for partition, offset, block in new:
            unsure = self._unsure.get(partition)
            if unsure and offset < unsure.end and block.table not in self._empty:
                doubtful.setdefault(block.table, set()).add(block.id)
        if not doubtful:
            return set()
        running = self._running()
        found = {one for ids in doubtful.values() for one in ids if one in running}
        for table, ids in sorted(doubtful.items()):
            try:
                found |= self._among(table, ids, nothing_runs=not running)
            except Refused:  # one table's trouble: the attempt at its blocks meets it again
                found |= ids
        return found

    def _among(self, table: str, ids: set[str], *, nothing_runs: bool) -> set[str]:
        """Those that are in their table, or may be."""
        target = self._tables.look({table}).get(table)
        if target is None:
            return set()
        # Rows of a table like Null are never seen: a person's word counts more than that.
        stays = target.nature.plain or not self.lost
        if stays and not self._has_rows(table):
            if nothing_runs:  # what still runs may leave rows of blocks of later batches
                self._empty.add(table)
            return set()
        return set(self._tables.counted(table, ids)) if target.counts(self._stamp) else ids

    def _has_rows(self, table: str) -> bool:
        return bool(self._ask(f"SELECT 1 FROM {quoted_table(table)} LIMIT 1"))  # noqa: S608 - quoted

    def _running(self) -> set[str]:
        """Ids of the app's blocks whose INSERT runs."""
        rows = self._ask(
            "SELECT arrayJoin(splitByChar(',', Settings['log_comment'])) AS block "
            "FROM system.processes WHERE startsWith(block, {begin:String})",
            begin=f"{self._ledger.app}:",
        )
        return {str(row[0]) for row in rows}

    def _ask(self, sql: str, **parameters: object) -> list[Sequence[Any]]:
        try:
            return list(self._ledger.client.query(sql, parameters=parameters).result_rows)
        except ClickHouseError as error:
            raise failure(error, "asking what the tables have already") from error
