"""Which blocks may be in their tables though the ledger has no entry of them.

Receives the blocks of a micro-batch, gives the ids of those that loader.plan has to ask about
before it inserts. Where a person says that the ledger was lost, that is every block before the
journal's end of then. Else it may as well be a first start, or a restored ClickHouse whose tables
and ledger are of one moment: then only blocks are asked about of which a row is there, or whose
INSERT still runs. A question for each table and micro-batch, none for a table that was empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from clickhouse_connect.driver.exceptions import ClickHouseError

from loader.clickhouse import failure, quoted, quoted_table
from relay.errors import Refused
from relay.httppool import in_urls

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
        self._empty: set[str] = set()
        self.lost = any(one.lost for one in unsure.values())

    def among(self, new: Iterable[tuple[int, int, Block]]) -> set[str]:
        """Return the ids of those that have to be asked about.

        Args:
            new: journal partition, offset and block, of which the ledger has no entry.

        Raises:
            Unavailable, Refused: as ClickHouse answers.
        """
        found: set[str] = set()
        doubtful: dict[str, list[str]] = {}
        for partition, offset, block in new:
            unsure = self._unsure.get(partition)
            if unsure is None or offset >= unsure.end:
                continue
            if unsure.lost:
                found.add(block.id)
            elif block.table not in self._empty:
                doubtful.setdefault(block.table, []).append(block.id)
        if not doubtful:
            return found
        running = self._running()
        for table in self._stamped(doubtful):
            try:
                here = self._present(table, doubtful[table])
            except Refused:  # one table's trouble: the attempt at its blocks meets it again
                here = set(doubtful[table])
            found |= here
            # What still runs may leave rows of blocks of later batches.
            if not here and not running and not self._any(table):
                self._empty.add(table)
        return found | {one for some in doubtful.values() for one in some if one in running}

    def _any(self, table: str) -> bool:
        return bool(self._ask(f"SELECT 1 FROM {quoted_table(table)} LIMIT 1"))  # noqa: S608 - quoted

    def _running(self) -> set[str]:
        """Ids of the app's blocks whose INSERT runs."""
        rows = self._ask(
            "SELECT arrayJoin(splitByChar(',', Settings['log_comment'])) AS block "
            "FROM system.processes WHERE startsWith(block, {begin:String})",
            begin=f"{self._ledger.app}:",
        )
        return {str(row[0]) for row in rows}

    def _stamped(self, tables: Iterable[str]) -> list[str]:
        """Those that have the block-id column, whatever their engine: a row is a row."""
        rows = self._ask(
            "SELECT database || '.' || table FROM system.columns WHERE name = {stamp:String} "
            "AND database || '.' || table IN {tables:Array(String)}",
            stamp=self._stamp,
            tables=sorted(tables),
        )
        return sorted(str(row[0]) for row in rows)

    def _present(self, table: str, blocks: Sequence[str]) -> set[str]:
        stamp, found = quoted(self._stamp), set()
        for some in in_urls(blocks, len):
            rows = self._ask(
                f"SELECT DISTINCT toString({stamp}) FROM {quoted_table(table)} "  # noqa: S608 - names are quoted, values bound
                f"WHERE {stamp} IN {{blocks:Array(String)}}",
                blocks=list(some),
            )
            found |= {str(row[0]) for row in rows}
        return found

    def _ask(self, sql: str, **parameters: object) -> list[Sequence[Any]]:
        try:
            return list(self._ledger.client.query(sql, parameters=parameters).result_rows)
        except ClickHouseError as error:
            raise failure(error, "asking what the tables have already") from error
