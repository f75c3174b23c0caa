"""The ledger: a table in ClickHouse with one row per change of a block's state.

Receives and gives loader.core.plan's entries; also keeps positions in the journal. Never
decides anything, never updates or deletes a row.
"""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from clickhouse_connect.driver.exceptions import ClickHouseError

from loader.clickhouse import ledger_table
from loader.clickhouse.client import failure, is_permanent, rows_written
from loader.clickhouse.table_state_sql import STARTED
from loader.clickhouse.unconfirmed_parts import MAY_DROP
from loader.core import left_out, waiting
from loader.core.claim_sql import AGAIN, HOLDING, HOLDS, MARK
from loader.core.entries import NewEntry, ParkedEntry, ledger_columns
from loader.core.plan import Entry, settled
from loader.core.positions import (
    NOTED,
    SAVE,
    STANDING,
    Noted,
    parse_noted,
    save_parameters,
    select_positions,
)
from relay.clickhouse.errors import UNKNOWN_COLUMNS, number
from relay.clickhouse.hidden_rows import exempt, shown_once_there, shown_only
from relay.clickhouse.http_pool import in_urls
from relay.clickhouse.quoting import quoted, quoted_table, table_parameters
from relay.clickhouse.statement_settings import FEW_ROWS, free_of
from relay.errors import Refused, Unavailable
from relay.records_pb2 import Block

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from clickhouse_connect.driver.httpclient import HttpClient

    from loader.core.waiting import Place, Resting

_TICK_MS = 10
"""By how much the time of a file, as of a table's definition, may be behind the clock."""


class Claimed(NamedTuple):
    """When the oldest claim of a block was made, by the server's clock, and before whom."""

    seconds: float
    """Ago."""
    at_ms: int
    """Unix time."""
    versions: frozenset[str]
    """ClickHouse's, before each of the block's claims; "": a claim does not say."""
    started: int = 0
    """Unix second when the server that answers was started."""

    def may_precede(self, second: int) -> bool:
        """Return whether what a server dates to this Unix second may have come after the claim."""
        return second >= (self.at_ms - _TICK_MS) // 1000


class Ledger:
    """The ledger of one app, through one client.

    Raises (every method): Unavailable, Refused.
    """

    def __init__(self, client: HttpClient, database: str, app: str) -> None:
        self.client = client
        self.app = app
        self._database = database
        self.table, self.name = f"{database}.ledger", f"{quoted(database)}.ledger"
        self._kept: frozenset[str] = frozenset()
        self.holds = HOLDS.replace("LEDGER", self.name)
        self.holding = HOLDING.replace("LEDGER", self.name)

    @cached_property
    def for_few_rows(self) -> Mapping[str, object]:
        """Settings of a statement that reads and writes few rows."""
        try:
            return free_of(self.client, FEW_ROWS)
        except ClickHouseError as error:
            raise failure(error, f"ledger {self.name}") from error

    def exists(self) -> bool:
        """Return whether a loader has ever run here."""
        return bool(self.ask("EXISTS TABLE LEDGER")[0][0])

    def engine(self) -> str:
        """Return the engine of the ledger's table; empty if there is no table."""
        rows = self.ask(
            "SELECT engine FROM system.tables WHERE database = {within:String} AND name = 'ledger'",
            within=self._database,
        )
        return str(rows[0][0]) if rows else ""

    def ensure(self) -> None:
        """Create database and table if they do not exist.

        Raises:
            ContractBroken: a table of that name has other columns, or rows of no time.
        """
        if not self.exists():
            self._tell(f"CREATE DATABASE IF NOT EXISTS {quoted(self._database)}")
            self._tell(ledger_table.create(self.name))
        columns = {row[0]: row[2:4] for row in self.ask("DESCRIBE TABLE LEDGER")}
        alter = ledger_table.add_columns(self.name, columns)
        ledger_table.check_clock(self.name, *columns["at"])
        if alter:
            self._tell(alter)

    def check_seen(self) -> None:
        """Check that no row is hidden from this user.

        Raises:
            Refused: some are hidden, so that a block which is loaded looks as if it were not.
        """
        try:
            seen = shown_only(self.client, self.name)
        except ClickHouseError as error:
            raise failure(error, f"ledger {self.name}") from error
        if seen:
            raise Refused(
                f"this user sees only those rows of the ledger {self.name} where {seen}: a row "
                "policy or additional_table_filters hides the others, so the loader cannot know "
                "which blocks are loaded",
                f"{exempt(self.name)} start the loader again. Nothing was inserted meanwhile.",
            )

    def shown_of(self, table: str) -> str | None:
        """Return the condition under which this user sees a row of a target table.

        Empty: it sees all of them, or may not read the table, which is said where it matters.
        None: the server does not say, for the table is empty, or cannot be looked at now.
        """
        try:
            return shown_once_there(self.client, quoted_table(table))
        except ClickHouseError as error:
            return "" if is_permanent(error) else None

    def entries(self, blocks: Sequence[Block]) -> dict[str, tuple[Entry, ...]]:
        """Return all rows of the blocks, by block id; a block without rows is not in it."""
        entries: defaultdict[str, list[Entry]] = defaultdict(list)
        for some in in_urls(blocks, lambda block: len(block.id)):
            rows = self.ask(
                "SELECT block, state, attempt, claim, seen, stamped, reason, rows, transform, "  # noqa: S608 - constants
                f"sent, left_out, if({waiting.RESTS}, '', record) FROM LEDGER "
                "WHERE app = {app:String} AND table IN {tables:Array(String)} "
                "AND block IN {blocks:Array(String)}",
                self.for_few_rows,
                **_named(some),
            )
            for block, *entry in rows:
                entries[block].append(Entry(*entry))
        return {block: tuple(of_block) for block, of_block in entries.items()}

    def kept_entries(self, blocks: Sequence[Block]) -> dict[str, tuple[Entry, ...]]:
        """Return the same, and keep what settles blocks: nobody tries those again.

        A replica shows rows of an INSERT that Keeper did not answer, and drops them later if Keeper
        does not have them, whoever wrote them. So they are written once more.
        """
        entries = self.entries(blocks)
        over = [block for block in blocks if settled(entries.get(block.id, ()))]
        new = [block for block in over if block.id not in self._kept]
        if new and self._may_drop():
            for some in in_urls(new, lambda block: len(block.id)):
                self._write_again(some)
        self._kept = frozenset(block.id for block in over)
        return entries

    def _may_drop(self) -> bool:
        try:
            return bool(self.ask(MAY_DROP, None, **table_parameters(self.table))[0][0])
        except Refused:  # this user may not ask
            return self.engine().startswith("Replicated")

    def _write_again(self, blocks: Sequence[Block]) -> None:
        again = AGAIN.replace("LEDGER", self.name)
        answer = self._tell(again, None, **_named(blocks), all=len(blocks))
        if not rows_written(answer):  # another replica, or this one has dropped them
            raise Unavailable(
                f"the ledger {self.name} has no longer what settled {blocks[0].id}, or others",
                "It is read again.",
            )

    def oldest_claim(self, block: Block) -> Claimed:
        """Return when the first claim of a block was made, by the server's clock at both ends."""
        rows = self.ask(
            "SELECT toFloat64(now64(3)) - toFloat64(min(at)), toUnixTimestamp64Milli(min(at)), "  # noqa: S608 - constants
            f"groupUniqArrayIf(version, state = 'prepared'), {STARTED} FROM LEDGER WHERE "
            "app = {app:String} AND table = {table:String} AND block = {block:String}",
            table=block.table,
            block=block.id,
        )
        ago, at_ms, versions, started = rows[0]
        return Claimed(float(ago), int(at_ms), frozenset(versions), int(started))

    def write(self, rows: Sequence[NewEntry], until: int = 0) -> None:
        """Append rows, all of them visible at once.

        `until`: Unix seconds by the server's clock: later nothing is written; 0: whenever.
        """
        self._append(map(ledger_columns, rows), f"now() <= {until:d}" if until else "")

    def mark_first(self, rows: Sequence[NewEntry]) -> bool:
        """Append loaded rows if the ledger has their claim and nothing else of these blocks.

        It takes the server two thirds of what `mark` takes, and says what became of it. `rows`: all
        under one claim.

        Returns:
            True: the server says that it wrote them, all at once; False: it does not say so.
        """
        condition = f"length({{blocks:Array(String)}}) IN {self.holding}"
        blocks = _named([row.block for row in rows])
        claim = rows[0].entry.claim
        return bool(self._append(map(ledger_columns, rows), condition, **blocks, claim=claim))

    def mark(
        self,
        blocks: Sequence[Block],
        claim: str,
        outcome: tuple[str, str] = ("loaded", ""),
        made_by: str = "",
        rest: str = "parked",
    ) -> None:
        """Append a row of this state for each block whose claim holds.

        What is left out of a loaded block is a block of its own by the same statement.

        Args:
            blocks: all under this claim.
            claim: written before for each of them.
            outcome: the state, loaded, discarded or dead, and why.
            made_by: the claim whose rows these are, if it is another.
            rest: the state of what is left out: parked, or aside where it becomes dead letters.
        """
        self._tell(
            MARK.replace("LEDGER", self.name),
            None,
            **_named(blocks),
            claim=claim,
            made_by=made_by or claim,
            state=outcome[0],
            reason=outcome[1],
            rest=rest,
        )

    def noted(self) -> Noted:
        """Read the positions in the app's journals, and where entries may be missing."""
        return parse_noted(self.ask(NOTED, self.for_few_rows))

    def noted_from(self, journal: str, floors: Mapping[int, int]) -> Noted:
        """Read a journal's positions alone, if none is before its floor; else what is `noted`."""
        sql = STANDING.replace("STAND", select_positions(journal, floors))
        positions = parse_noted(self.ask(sql, self.for_few_rows))
        return positions if floors.keys() <= positions.of(journal).keys() else self.noted()

    def positions(self) -> Mapping[tuple[str, int], int]:
        """Return the next journal offset by (topic id, partition): all before is settled."""
        return self.noted().positions

    def save_positions(
        self, journal: str, positions: Mapping[int, int], known: Mapping[int, int] | None = None
    ) -> None:
        """Append position rows, unless the ledger is behind what it is `known` to have said.

        Where it has those positions no more, somebody set it back, and a position beyond would
        hide what is missing: then nothing is written.
        """
        before = known or {}
        sql = SAVE.replace("STAND", select_positions(journal, before)).replace("LEDGER", self.name)
        self._tell(sql, **save_parameters(journal, positions, before))

    def note(self, rows: Iterable[Mapping[str, object]]) -> None:
        """Append rows that loader.core.positions made."""
        self._append(iter(rows))

    def remove(self, where: Sequence[str]) -> None:
        """Remove rows that meet one of the conditions, and wait until all replicas have done so.

        Mutations are carried out in their order, and together where several wait: so a part is not
        written anew for each, and the last is the one to wait for.
        """
        delete = f"ALTER TABLE {self.name} DELETE WHERE"
        for nth, condition in enumerate(where, start=1):
            sync = 2 if nth == len(where) else 0
            self._tell(f"{delete} {condition} SETTINGS mutations_sync = {sync}")

    def counts(self) -> list[tuple[str, str, int, int]]:
        """Return (table, state, blocks, rows); a block that is tried again stays what it was."""
        return sorted(tuple(row) for row in self.ask(waiting.COUNTS))

    def waiting(self, *, aside: bool = True) -> list[ParkedEntry]:
        """Return blocks that wait, by block id; `aside`: those that stand aside, too, very many."""
        return waiting.parse_entries(self.ask(waiting.ALL if aside else waiting.PARKED))

    def next_aside(self, after: Mapping[str, Place], each: int) -> Resting:
        """Return how many blocks wait, and which of those that stand aside are next.

        `after` and `each`: as of loader.core.waiting.next_parameters.
        """
        parameters = waiting.next_parameters(after, each)
        return waiting.parse_resting(
            self.ask(waiting.NEXT, **parameters), self.ask(waiting.NEXT_ENTRIES, **parameters)
        )

    def now_ms(self) -> int:
        """Return the Unix ms by the server's clock."""
        return int(self.ask("SELECT toUnixTimestamp64Milli(now64(3))")[0][0])

    def waiting_records(self) -> Iterator[Block]:
        """Yield all blocks that are parked or set aside, without holding them."""
        sql, named = waiting.RECORDS.replace("LEDGER", self.name), {"app": self.app}
        try:
            with self.client.query_rows_stream(sql, parameters=named) as rows:
                for (record,) in rows:
                    yield left_out.read(record)
        except ClickHouseError as error:
            raise self._failure(error) from error

    def _append(
        self, rows: Iterator[Mapping[str, object]], condition: str = "", **parameters: object
    ) -> int | None:
        """Return how many rows the server says it wrote; None: it does not say."""
        if not (body := "\n".join(json.dumps({"app": self.app, **row}) for row in rows)):
            return 0
        sql = f"INSERT INTO {self.name} {ledger_table.insert_columns(condition)} FORMAT JSONEachRow"
        return rows_written(self._tell(sql, data=body.encode(), **parameters))

    def ask(
        self, sql: str, settings: Mapping[str, object] | None = None, **parameters: object
    ) -> list[Sequence[Any]]:
        """Ask a question about the table, which it calls LEDGER; return the answer."""
        named, sql = {"app": self.app, **parameters}, sql.replace("LEDGER", self.name)
        try:
            answer = self.client.query(sql, parameters=named, settings=dict(settings or {}))
        except ClickHouseError as error:
            raise self._failure(error) from error
        return list(answer.result_rows)

    def _tell(self, sql: str, data: bytes | None = None, **parameters: object) -> object:
        # async_insert would answer before the row can be read.
        inserts = sql.startswith("INSERT")
        settings = {"async_insert": 0, **self.for_few_rows} if inserts else {}
        try:
            return self.client.command(
                sql, parameters={"app": self.app, **parameters}, data=data, settings=settings
            )
        except ClickHouseError as error:
            raise self._failure(error) from error

    def _failure(self, error: ClickHouseError) -> Unavailable | Refused:
        """Return the error for people; that an earlier version made the ledger may be its cause."""
        why = failure(error, f"ledger {self.name}")
        if number(str(error)) not in UNKNOWN_COLUMNS:
            return why
        return Refused(
            f"{why.message}; an earlier version of the loader made this ledger",
            "start `loader run` of this version: it adds the column. Then repeat this command",
        )


def _named(blocks: Collection[Block]) -> dict[str, list[str]]:
    """The parameters of a statement about these blocks."""
    return {
        "tables": sorted({block.table for block in blocks}),
        "blocks": [block.id for block in blocks],
    }
