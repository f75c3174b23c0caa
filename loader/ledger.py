"""The ledger: a table in ClickHouse with one row per change of a block's state.

Receives and gives loader.plan's entries; also keeps positions in the journal. Never
decides anything, never updates or deletes a row.

The table is made as MergeTree, right for a single server. On a cluster, make it
beforehand with the same columns as ReplicatedMergeTree and send the loader to one
replica (README has the statement): the loader uses what it finds.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from clickhouse_connect.driver.exceptions import ClickHouseError

from loader.clickhouse import failure, quoted
from loader.entries import Parked, Row
from loader.plan import Entry
from relay import names
from relay.errors import ContractBroken
from relay.httppool import in_urls
from relay.records_pb2 import Block

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from clickhouse_connect.driver.httpclient import HttpClient

COLUMNS: Mapping[str, str] = {
    "app": "LowCardinality(String)",
    "table": "LowCardinality(String)",  # empty in position rows
    "block": "String",  # in position rows the journal's topic id and partition
    "state": "LowCardinality(String)",  # prepared, loaded, parked, discarded; position
    "attempt": "Int64",  # in position rows the next journal offset
    "claim": "String",
    "seen": "Int64",
    "stamped": "Bool",
    "rows": "UInt64",
    "reason": "String",
    "record": "String",  # of a parked block: its journal record in base64, to resolve it by
    "at": "DateTime64(3) DEFAULT now64(3)",
}

_RANK = "(attempt, state != 'prepared', claim)"
_FINAL = "state IN ('loaded', 'discarded')"
_NOW = f"(argMax(claim, {_RANK}), argMax(state, {_RANK}) = 'parked', countIf({_FINAL}))"
_HELD = "({claim:String}, 0, 0)"
HOLDS = (
    f"(SELECT {_NOW} FROM LEDGER WHERE app = {{app:String}} AND table = {{table:String}} "  # noqa: S608 - constants
    f"AND block = {{block:String}}) = {_HELD}"
)
"""loader.plan.holds in SQL, evaluated by ClickHouse when the statement runs."""


class Ledger:
    """The ledger of one app, through one client.

    Raises (every method): Unavailable, Refused.
    """

    def __init__(self, client: HttpClient, database: str, app: str) -> None:
        self.client = client
        self.app = app
        self.name = f"{quoted(database)}.ledger"
        self.holds = HOLDS.replace("LEDGER", self.name)

    def exists(self) -> bool:
        """Whether a loader has ever run here."""
        return bool(self._ask(f"EXISTS TABLE {self.name}")[0][0])

    def ensure(self, database: str) -> None:
        """Makes database and table where they are not there.

        Raises:
            ContractBroken: a table of that name has other columns.
        """
        columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        if not self.exists():
            self._tell(f"CREATE DATABASE IF NOT EXISTS {quoted(database)}")
            self._tell(
                f"CREATE TABLE IF NOT EXISTS {self.name} ({columns}) ENGINE = MergeTree "
                "ORDER BY (app, table, block)"
            )
        found = {row[0] for row in self._ask(f"DESCRIBE TABLE {self.name}")}
        if missing := COLUMNS.keys() - found:
            raise ContractBroken(
                f"{self.name} has no column {', '.join(sorted(missing))}",
                "Set loader.database to one whose `ledger` is this product's, or to a new one.",
            )

    def entries(self, blocks: Sequence[Block]) -> dict[str, tuple[Entry, ...]]:
        """All rows of the blocks, by block id; a block without rows is not in it."""
        found: dict[str, list[Entry]] = {}
        for some in in_urls(blocks, lambda block: len(block.id)):
            rows = self._ask(
                f"SELECT block, state, attempt, claim, seen, stamped, reason FROM {self.name} "  # noqa: S608 - names are quoted, values bound
                "WHERE app = {app:String} AND table IN {tables:Array(String)} "
                "AND block IN {blocks:Array(String)}",
                tables=sorted({block.table for block in some}),
                blocks=[block.id for block in some],
            )
            for block, *entry in rows:
                found.setdefault(block, []).append(Entry(*entry))
        return {block: tuple(entries) for block, entries in found.items()}

    def oldest_claim(self, block: Block) -> float:
        """Seconds since the first claim of a block, by the server's clock at both ends."""
        rows = self._ask(
            f"SELECT toFloat64(now64(3)) - toFloat64(min(at)) FROM {self.name} WHERE "  # noqa: S608 - names are quoted, values bound
            "app = {app:String} AND table = {table:String} AND block = {block:String}",
            table=block.table,
            block=block.id,
        )
        return float(rows[0][0])

    def write(self, rows: Sequence[Row]) -> None:
        """Appends rows, all of them visible at once."""
        self._append(
            {
                "table": row.block.table,
                "block": row.block.id,
                "rows": row.block.rows,
                "record": base64.b64encode(row.block.SerializeToString()).decode()
                if row.entry.state == "parked"
                else "",
                "state": row.entry.state,
                "attempt": row.entry.attempt,
                "claim": row.entry.claim,
                "seen": row.entry.seen,
                "stamped": row.entry.stamped,
                "reason": row.entry.reason,
            }
            for row in rows
        )

    def mark(
        self,
        blocks: Sequence[Block],
        claim: str,
        check: str = "1",
        bound: int = 0,
        said: tuple[str, str] = ("loaded", ""),
    ) -> None:
        """Appends a row of this state for each block whose claim holds and `check` is true.

        Args:
            blocks: all of one table, all under this claim.
            claim: written before for each of them.
            check: SQL about `block` and `found_rows`, the block's; may use `bound` and the
                table's `database` and `name`.
            bound: a part counter.
            said: the state, loaded or discarded, and why.
        """
        database, name = names.split_table(blocks[0].table)
        self._tell(
            f"INSERT INTO {self.name} (app, table, block, state, attempt, claim, reason, rows) "  # noqa: S608 - names are quoted, values bound
            "SELECT app, table, block, {state:String}, max(attempt), {claim:String}, "
            f"{{reason:String}}, argMax(rows, {_RANK}) AS found_rows FROM {self.name} "
            "WHERE app = {app:String} AND table = {table:String} "
            "AND block IN {blocks:Array(String)} "
            f"GROUP BY app, table, block HAVING {_NOW} = {_HELD} AND ({check})",
            table=blocks[0].table,
            blocks=[block.id for block in blocks],
            claim=claim,
            state=said[0],
            reason=said[1],
            bound=bound,
            database=database,
            name=name,
        )

    def positions(self) -> dict[tuple[str, int], int]:
        """Next journal offset by (journal topic id, partition): all before it is settled."""
        rows = self._ask(
            f"SELECT block, max(attempt) FROM {self.name} WHERE app = {{app:String}} "  # noqa: S608 - names are quoted, values bound
            "AND table = '' AND state = 'position' GROUP BY block"
        )
        keys = ((block.rpartition(":"), offset) for block, offset in rows)
        return {(journal, int(partition)): offset for (journal, _, partition), offset in keys}

    def save_positions(self, journal: str, positions: Mapping[int, int]) -> None:
        """Appends position rows."""
        self._append(
            {"block": f"{journal}:{partition}", "state": "position", "attempt": offset}
            for partition, offset in positions.items()
        )

    def counts(self) -> list[tuple[str, str, int, int]]:
        """(table, state, blocks, rows), a block in its current state."""
        return sorted(
            tuple(row) for row in self._current("table, now, count(), sum(n)", "table, now")
        )

    def waiting(self) -> list[Parked]:
        """Blocks that were parked and are not settled since, by block id."""
        rows = self._current(
            "any(rec), any(why), any(since), any(now) != 'parked'",
            "block HAVING any(rec) != '' AND any(now) IN ('parked', 'prepared')",
        )
        found = [Parked(Block.FromString(base64.b64decode(row[0])), *row[1:]) for row in rows]
        return sorted(found, key=lambda one: one.block.id)

    def parked(self) -> list[tuple[Block, str]]:
        """Blocks that wait for a person, with their reasons."""
        return [(one.block, one.reason) for one in self.waiting()]

    def _current(self, columns: str, group: str) -> list[Sequence[Any]]:
        order = "(state = 'loaded', state = 'discarded', attempt, state != 'prepared', claim)"
        return self._ask(
            f"SELECT {columns} FROM (SELECT table, block, argMax(state, {order}) AS now, "  # noqa: S608 - names are quoted, values bound
            f"any(rows) AS n, argMaxIf(record, {order}, state = 'parked') AS rec, "
            f"argMaxIf(reason, {order}, state = 'parked') AS why, "
            "toUnixTimestamp64Milli(maxIf(at, state = 'parked')) AS since "
            f"FROM {self.name} WHERE app = {{app:String}} AND state != 'position' "
            f"GROUP BY table, block) GROUP BY {group}"
        )

    def _append(self, rows: Iterator[dict[str, object]]) -> None:
        body = "\n".join(json.dumps({"app": self.app, **row}) for row in rows)
        if body:
            columns = ", ".join(name for name in COLUMNS if name != "at")
            self._tell(
                f"INSERT INTO {self.name} ({columns}) FORMAT JSONEachRow", data=body.encode()
            )

    def _ask(self, sql: str, **parameters: object) -> list[Sequence[Any]]:
        try:
            result = self.client.query(sql, parameters={"app": self.app, **parameters})
        except ClickHouseError as error:
            raise failure(error, f"ledger {self.name}") from error
        return list(result.result_rows)

    def _tell(self, sql: str, data: bytes | None = None, **parameters: object) -> None:
        # async_insert would answer before the row can be read.
        settings = {"async_insert": 0} if sql.startswith("INSERT") else {}
        try:
            self.client.command(
                sql, parameters={"app": self.app, **parameters}, data=data, settings=settings
            )
        except ClickHouseError as error:
            raise failure(error, f"ledger {self.name}") from error
