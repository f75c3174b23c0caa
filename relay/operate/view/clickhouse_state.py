"""Reads the ledger's counts, parked blocks, and one block's rows, for operators. Never writes."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter

from relay import names
from relay.clickhouse.http_pool import in_urls
from relay.errors import Refused
from relay.operate.verify.judge.beginning import LedgerReach, reaches
from relay.operate.verify.read.landed_rows import RESTS, STATE_NOW, LandedRows
from relay.operate.view import lost_ledger
from relay.operate.view.block_story import Landed, LedgerChange, TablePart
from relay.operate.view.facts import LedgerFacts, ParkedBlock

PARKED_SHOWN = 1_000
"""Of each table, those that wait longest: `loader parked ls` has all, and the counts count all."""
_NOW = (
    f"SELECT table, block, {STATE_NOW} AS now,"  # noqa: S608 - a constant
    """
       argMax(rows, (state = 'loaded', attempt, state != 'prepared', claim)) AS n,
       argMaxIf(state, (attempt, claim), state IN ('parked', 'aside')) = 'aside' AS rests,
       concat(if(rests, 'set aside, and tried again: ', ''),
              argMaxIf(reason, (attempt, claim), state IN ('parked', 'aside'))) AS why,
       toUnixTimestamp64Milli(if(rests, minIf(at, state = 'aside'), maxIf(at, state = 'parked')))
           AS since
FROM {ledger:Identifier}.ledger
WHERE app = {app:String} AND state != 'position' {some}
GROUP BY table, block
"""
)
_COUNTS = (
    f"SELECT table, now, count(), sum(n) FROM ({_NOW}) "  # noqa: S608 - constants
    "GROUP BY table, now ORDER BY 1, 2"
)
_PARKED = (
    f"SELECT block, table, n, why, since FROM ({_NOW}) "  # noqa: S608 - constants
    "WHERE now IN ('parked', 'aside') ORDER BY since, block "
    "LIMIT {shown:UInt64} BY table"
)
_SETTLED = """
SELECT toUnixTimestamp64Milli(max(at)) FROM {ledger:Identifier}.ledger
WHERE app = {app:String} AND state NOT IN ('prepared', 'position')
"""
_SOME = "AND table IN {tables:Array(String)} AND block IN {blocks:Array(String)}"
_RESTED = (
    "AND block IN (SELECT block FROM {ledger:Identifier}.ledger "  # noqa: S608 - a constant
    f"WHERE app = {{app:String}} AND {RESTS})"
)
_POSITIONS = """
SELECT block, max(attempt), argMin(attempt, at), toUnixTimestamp64Milli(min(at))
FROM {ledger:Identifier}.ledger
WHERE app = {app:String} AND table = '' AND state = 'position' GROUP BY block
"""
_CHANGES = """
SELECT toUnixTimestamp64Milli(at), state, attempt, claim, rows, reason
FROM {ledger:Identifier}.ledger
WHERE app = {app:String} AND table = {table:String} AND block = {block:String}
ORDER BY at, attempt, state != 'prepared'
"""
_PARTS = """
SELECT p.name, found.n, toString(p.modification_time)
FROM (SELECT _part, count() AS n FROM {database:Identifier}.{name:Identifier}
      WHERE {column:Identifier} = {block:String} GROUP BY _part) AS found
LEFT JOIN (SELECT name, modification_time FROM system.parts
           WHERE database = {database:String} AND table = {name:String}) AS p
ON p.name = found._part ORDER BY 1
"""
_WRITTEN = f"""
SELECT part_name, rows, toString(event_time) FROM system.part_log
WHERE database = {{database:String}} AND table = {{name:String}} AND event_type = 'NewPart'
  AND query_id IN (SELECT query_id FROM system.query_log
                   WHERE {names.is_of_block("log_comment")})
ORDER BY 3, 1
"""  # noqa: S608 - constants
_LOGS = """
SELECT count() FROM system.tables WHERE database = 'system' AND name IN {logs:Array(String)}
"""
_COLUMN = """
SELECT (SELECT count() FROM system.tables
        WHERE database = {database:String} AND name = {name:String}),
       (SELECT count() FROM system.columns WHERE database = {database:String}
        AND table = {name:String} AND name = {column:String}),
       (SELECT count() FROM system.columns WHERE database = {database:String}
        AND table = {name:String} AND name = '_part')
"""
_ROWS = """
SELECT count() FROM {database:Identifier}.{name:Identifier}
WHERE {column:Identifier} = {block:String}
"""


class LandedBlocks(LandedRows):
    """More questions to ClickHouse than the verifier has.

    Raises (every method):
        Unavailable: no answer.
        Refused: the user may not ask.
    """

    def positions(self, journal: str) -> dict[int, int]:
        """Return the next offset by partition of the journal with this topic id."""
        return {p: reach.settled for p, reach in self.reach(journal).items()}

    def reach(self, journal: str) -> dict[int, LedgerReach]:
        """Return what the ledger has settled, by partition of the journal with this topic id."""
        if not self.has_ledger():
            return {}
        return reaches(journal, self._ask(_POSITIONS, self._ledger()))

    def states(self, tables: Mapping[str, str]) -> dict[str, str]:
        """Return the states of blocks that the ledger has, of those in `tables`, by block id."""
        states: dict[str, str] = {}
        by_table = sorted(tables.items(), key=itemgetter(1, 0))
        for some in in_urls(by_table, lambda block: len(block[0]) + len(block[1])):
            of = {"blocks": [block for block, _ in some], "tables": list({t for _, t in some})}
            found = self._ask(_NOW.replace("{some}", _SOME), self._ledger(**of))
            states.update((row[1], row[2]) for row in found)
        return states

    def settled_ms(self) -> int:
        """Return when a block last got a state other than prepared, Unix milliseconds; 0: never."""
        at_ms: int = self._ask(_SETTLED, self._ledger())[0][0]
        return max(at_ms, 0)

    def whole(self) -> LedgerFacts:
        """Return what the whole ledger has to be looked at for: its counts, and parked blocks."""
        counts = self._ask(_COUNTS.replace("{some}", ""), self._ledger())
        shown = self._ledger(shown=PARKED_SHOWN)
        parked = self._ask(_PARKED.replace("{some}", _RESTED), shown)
        return LedgerFacts(
            there=True,
            counts=tuple((table, now, n, rows) for table, now, n, rows in counts),
            parked=tuple(ParkedBlock(*row) for row in parked),
        )

    def lost(self, journal: str) -> str:
        """Return that there was a ledger, and by what that is known; empty: nothing says so."""
        elsewhere = lost_ledger.elsewhere(self._ask, self._settings.app)
        stands = lost_ledger.checkpointed(self._settings.loader.checkpoint, journal)
        return lost_ledger.describe_loss(self._settings, elsewhere, stands, {})

    def landed(self, block: str, table: str) -> Landed:
        """Return all that ClickHouse has of one block."""
        database, name = names.split_table(table)
        place = {"database": database, "name": name, "block": block}
        ledger = None
        if self.has_ledger():
            rows = self._ask(_CHANGES, self._ledger(table=table, block=block))
            ledger = tuple(LedgerChange(*row) for row in rows)
        count, parts, problem = self._rows(table, place)
        written, log_problem = self._written(place)
        return Landed(ledger, count, problem, parts, written, log_problem)

    def _rows(
        self, table: str, place: dict[str, str]
    ) -> tuple[int | None, tuple[TablePart, ...] | None, str]:
        column = self._settings.loader.block_column
        place = {**place, "column": column}
        there, stamped, hidden = self._ask(_COLUMN, place)[0]
        if not there:
            return None, None, f"there is no table {table}"
        if not stamped:
            return None, None, f"{table} has no column {column}"
        if hidden:  # by a column of the table's own: which part a row is in cannot be asked
            rows = int(self._ask(_ROWS, place)[0][0])
            return rows, None, f"{table} has a column _part of its own"
        parts = tuple(TablePart(*row) for row in self._ask(_PARTS, place))
        return sum(part.rows for part in parts), parts, ""

    def _written(self, place: dict[str, str]) -> tuple[tuple[TablePart, ...] | None, str]:
        logs = ["part_log", "query_log"]
        try:
            if self._ask(_LOGS, {"logs": logs})[0][0] < len(logs):
                return None, "the server keeps no system.part_log and system.query_log"
            return tuple(TablePart(*row) for row in self._ask(_WRITTEN, place)), ""
        except Refused as refused:
            return None, refused.message
