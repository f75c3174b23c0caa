"""What a server recorded of INSERTs, removals and hidden rows, beside the rows that it shows.

Receives tables, blocks and the time of their oldest claim, gives plain values for loader.core.plan.
Never writes. ClickHouse keeps query_log and part_log where its configuration has them (that of
its packages does); a user may be forbidden to read them. What is not kept, or not to be read,
proves nothing, and stops nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from clickhouse_connect.driver.exceptions import ClickHouseError

from loader.clickhouse.client import ReplicaSilent, error_code, failure, is_permanent, one_line
from loader.clickhouse.table_state_sql import (
    DELETES,
    KEPT_MUTATIONS,
    MOST_REMOVING,
    ON_ONE_REPLICA,
    PARTS,
    REMOVING,
    SHARED,
    STAYS,
    databases_of,
)
from loader.clickhouse.tables_behind import unlogged
from loader.core.plan import ServerRecord
from relay import names
from relay.clickhouse.hidden_rows import fewer_shown, shown_only, unmasked
from relay.clickhouse.http_pool import in_urls
from relay.clickhouse.quoting import quoted_table, table_parameters
from relay.clickhouse.removing_statements import STOPPED_WAITING, may_lack, removed_by, target
from relay.clickhouse.table_engine import KEPT_SETTING, TableEngine

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from clickhouse_connect.driver.httpclient import HttpClient

    from loader.core.table_rules import Nature

_DENIED = 497
_SINCE = "fromUnixTimestamp64Milli({since:Int64})"
_DAY = f"toDate32({_SINCE}) - 1"
"""By the clock of whatever time zone the user's session has; a Date has none before 1970-01-01."""
_COMPLETE = (
    "SELECT toUnixTimestamp64Milli(now64(3)) - uptime() * 1000 < {since:Int64} AND count() > 0 "  # noqa: S608 - constants
    f"FROM (SELECT 1 FROM system.LOG WHERE event_date <= toDate({_SINCE}) + 1 "
    f"AND event_time <= {_SINCE} + 2 LIMIT 1)"
)
"""Whether a log has everything since the claim: the server writes it in memory first, so a
server that was started since may have lost the last entries of the one before. And it has to have
one of the time of the claim, which left some: retention takes old ones first, a person all."""
_FAILED_FLUSHES = "SELECT sum(value) FROM system.events WHERE event = 'SystemLogErrorOnFlush'"
"""Since the server was started. Entries of a log that it cannot write (no memory, a full disk) are
thrown away, and it goes on. ClickHouse before 25.2 does not count it."""
_STATEMENTS = (
    "SELECT toString(type), written_rows, log_comment, query_id, "  # noqa: S608 - constants
    "toUnixTimestamp64Micro(event_time_microseconds), exception_code FROM system.query_log "
    f"WHERE {names.is_of_block('log_comment')} AND event_date >= {_DAY} "
    f"AND event_time >= {_SINCE} - 1 AND query_kind = 'Insert' AND is_initial_query "
    "ORDER BY event_time_microseconds"
)
"""A server that is a shard has the comment, too, with what a Distributed table sends it."""
_MADE_PARTS = (
    "SELECT count() FROM system.part_log WHERE event_type = 'NewPart' AND error = 0 "  # noqa: S608 - constants
    f"AND query_id IN {{queries:Array(String)}} AND event_date >= {_DAY}"
)
"""In any table: those of views count, too."""
_RECORDED = (
    "SELECT DISTINCT arrayJoin(arrayIntersect(splitByChar(',', log_comment), "  # noqa: S608 - constants
    "{blocks:Array(String)})) FROM system.query_log "
    "WHERE hasAny(splitByChar(',', log_comment), {blocks:Array(String)}) "
    f"AND event_date >= {_DAY} AND query_kind = 'Insert'"
)
FORGOTTEN = -1
"""In place of how many mutations deleted rows: the server may show some of them no more."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Of a table since a claim: parts of INSERTs; how often some went; patches; empty merges.

    `vanished`: of those that went, the ones of which the table may remember the tokens.
    """

    inserted: int
    dropped: int
    patches: int = 0
    emptied: int = 0
    vanished: int = 0


class ServerRecords:
    """Questions about what a server recorded, through one client.

    Args:
        client: of the server, or of the replicas.
        several: more servers than the one that is asked may have run a statement: what one of
            them did not record, another may have done.

    Raises (every method): Unavailable, Refused.
    """

    def __init__(self, client: HttpClient, *, several: bool) -> None:
        self._client, self._several = client, several

    def parts(self, place: Mapping[str, str], since_ms: int) -> Parts | None:
        """Return what the part log has since then; None where it may lack some.

        `place`: the table's database and name, as parameters of a statement.
        """
        if self._lacking("part_log", since_ms):
            return None
        rows = self.ask(PARTS, since_ms, **place)
        return Parts(*map(int, rows[0])) if rows else None

    def vanished(self, table: str, since_ms: int) -> bool:
        """Return whether parts are known to have gone since then, and to have left their tokens."""
        self._flush()
        rows = self.ask(PARTS, since_ms, **table_parameters(table))
        return bool(rows and int(rows[0][4]))

    def deletes(self, place: Mapping[str, str], since_ms: int, stamp: str) -> int | None:
        """Return how many mutations since the claim deleted rows or changed the column `stamp`.

        None where that is not known; FORGOTTEN where none is shown and some may be forgotten.
        `place`: as of `parts`.
        """
        if not (rows := self.ask(DELETES, since_ms, stamp=stamp, **place)):
            return None
        deletes, finished, oldest = map(int, rows[0])
        if (deletes := deletes or self._statements(place, since_ms, stamp)) or not finished:
            return deletes
        engine, full, default = next(iter(self.ask(KEPT_MUTATIONS, 0, **place) or ()), ("", "", ""))
        keeps = TableEngine(engine, full).kept_mutations(default)
        return FORGOTTEN if may_lack(finished, oldest, since_ms // 1000 - 1, keeps) else 0

    def _statements(self, place: Mapping[str, str], since_ms: int, stamp: str) -> int:
        """How many statements may have made such mutations, which may be killed since."""
        this = place["database"], place["name"]
        named = {"stamp": stamp, "stopped": list(STOPPED_WAITING), "place": ".".join(this), **place}
        rows = self.ask(REMOVING, since_ms, **named) or ()
        if len(rows) == MOST_REMOVING:
            return MOST_REMOVING  # one that was not read may have
        mine = (text for text, database in rows if target(text, database) == this)
        return sum(any(True for _ in removed_by(text, stamp, stamped=True)) for text in mine)

    def hidden(self, table: str) -> str:
        """Return why this user may not see all rows of the table; "": it sees them.

        A DELETE before a claim masks none of the block's rows; of those since then `deletes` and
        `parts` tell, and of one that was killed the block's own masked rows. Between the two counts
        others may insert as many as a policy hides.
        """
        ask = partial(self.ask, since_ms=0)
        return fewer_shown(ask, table, self.unmasked) or self.filtered(table)

    def filtered(self, table: str) -> str:
        """Return that this user sees only some rows of the table, and which; "": it sees all."""
        if seen := self.shown_only(table):
            return f"a row policy or filter hides rows from this user: it sees those where {seen}"
        return ""

    @cached_property
    def unmasked(self) -> str:
        """The SETTINGS of relay.clickhouse.hidden_rows."""
        return unmasked(partial(self.ask, since_ms=0))

    def shown_only(self, table: str) -> str:
        """Return the condition under which this user sees rows of the table; "": it sees all."""
        try:
            return shown_only(self._client, quoted_table(table))
        except ClickHouseError as error:
            if is_permanent(error):
                return ""  # nor can it count them
            raise failure(error, "asking which rows this user sees") from error

    def recorded(self, blocks: Collection[str], since_ms: int) -> set[str]:
        """Return those of the blocks that an INSERT in the query log names, however it ended."""
        self._flush()
        answers = (self.ask(_RECORDED, since_ms, blocks=ids) for ids in in_urls(blocks, len))
        return {str(row[0]) for rows in answers for row in rows or ()}

    def record(
        self, block: str, rows: Mapping[str, int], since_ms: int, table: str, ledger: str
    ) -> ServerRecord:
        """Return what the query log says of the INSERTs of a block since its oldest claim.

        `rows`: that an INSERT of each earlier claim writes, by claim; `since_ms`: of the oldest
        claim, by the server's clock. A server that lacks `table`, the block's, or `ledger` can't
        have run one.
        """
        self._flush()
        statements = self.ask(_STATEMENTS, since_ms, block=block)
        if statements is None:
            return ServerRecord(
                "unclear", said="the server keeps no query log that this user may read"
            )
        # The newest: a repeat under the token stands for what those before it left of it.
        for kind, written, comment, _, ended, _ in reversed(statements):
            claim = names.claim_of_comment(comment)
            needed = rows.get(claim, max(rows.values(), default=1))
            if kind == "QueryFinish" and written >= max(needed, 1):
                queries = sorted({query for _, _, _, query, *_ in statements})
                return self._stays(claim, queries, ended, since_ms, table)
        if not (doubt := self._doubt(statements, since_ms, table, ledger)):
            return ServerRecord("never", said="the server's query log has none that wrote a row")
        kinds = sorted({kind for kind, *_ in statements})
        listed = f" ({', '.join(kinds)})" if kinds else ""
        return ServerRecord(
            "unclear",
            said="the server's query log has no INSERT of this block that succeeded"
            f"{listed}, and {doubt}",
        )

    def _stays(
        self, claim: str, queries: Sequence[str], ended: int, since_ms: int, table: str
    ) -> ServerRecord:
        """Return whether the rows are still where the INSERTs wrote them, by the part log."""
        place = table_parameters(table)
        rows = self.ask(STAYS, since_ms, queries=queries, ended=ended, **place)
        made, remaining, elsewhere, vanished = rows[0] if rows else (0, 0, 0, 0)
        fact = "the server recorded that its INSERT succeeded"
        if vanished:
            return ServerRecord(
                "replaced",
                claim,
                f"{fact}, but parts of it went and the part log does not say how, as at REPLACE or "
                "MOVE PARTITION (or with a table that has no UUID), and others may have its rows",
            )
        if remaining:
            return ServerRecord("written", claim)
        if made and not elsewhere:
            return ServerRecord(
                "gone", claim, f"{fact}, but its parts were dropped or replaced since then"
            )
        return ServerRecord("perhaps", claim, f"{fact}, but not whether its rows are still there")

    def _doubt(
        self, statements: Sequence[Sequence[Any]], since_ms: int, table: str, ledger: str
    ) -> str:
        """Return why an INSERT of the block may have written something.

        "": the logs have every one that any server ran, each ended, and without a part.
        `statements`: entries of the query log, as of _STATEMENTS.
        """
        started = {query for kind, _, _, query, *_ in statements if kind == "QueryStart"}
        ended = {query for kind, _, _, query, *_ in statements if kind != "QueryStart"}
        if started - ended:
            return self._flush() or "the log may lack the end of one"
        if self._several or self.elsewhere({table, ledger}):
            return "another replica may have run one, whose log this is not"
        if lacking := self._lacking("query_log", since_ms):
            return lacking
        if not ended:
            return ""
        # Rows are counted before they are given to any table: without one, nothing was begun.
        codes = [code for _, written, *_, code in statements if written]
        if codes and (why := unlogged(self.ask, table, codes)):
            return f"those that failed may have written some rows: {why}"
        parts = self.ask(_MADE_PARTS, since_ms, queries=sorted(ended))
        if parts and not int(parts[0][0]) and not self._lacking("part_log", since_ms):
            return ""
        return self._lost() or "those that failed may have written some rows"

    def elsewhere(self, tables: Collection[str]) -> bool:
        """Return whether another server may have all of these tables, with the same rows."""
        kinds = self.ask(SHARED, 0, tables=list(tables), databases=databases_of(tables))
        if not kinds or kinds[0][0]:  # of shared ones no server knows the others
            return True
        if not (replicated := int(kinds[0][1])):
            return False
        alone = self.ask(ON_ONE_REPLICA, 0, tables=list(tables))
        if alone and alone[0][1]:
            raise ReplicaSilent("Keeper does not say whether another server has the same rows")
        return not alone or int(alone[0][0]) < replicated

    def _lost(self) -> str:
        """Return why the server may have lost entries of its logs since it was started."""
        failed = self.ask(_FAILED_FLUSHES, 0)
        if failed is None:
            return "whether logs lost entries is not known (the user needs SELECT on system.events)"
        return "the server could not write all entries of its logs" if failed[0][0] else ""

    def _lacking(self, log: str, since_ms: int) -> str:
        """Return why a log may lack entries since the claim; "": it has all."""
        if refused := self._flush():
            return refused
        rows = self.ask(_COMPLETE.replace("LOG", log), since_ms)
        return self._lost() or ("" if rows and rows[0][0] else "the log may lack some")

    def _flush(self) -> str:
        """Have the server write its logs; return why they may lack the last; "": it did."""
        try:
            self._client.command("SYSTEM FLUSH LOGS")
        except ClickHouseError as error:
            if not is_permanent(error):
                raise failure(error, "flushing the server's logs") from error
            right = "the user needs GRANT SYSTEM FLUSH LOGS ON *.*"
            why = right if error_code(error) == _DENIED else one_line(error)
            return f"the log may lack some ({why})"
        return ""

    def ask(self, sql: str, since_ms: int, **parameters: object) -> list[Sequence[Any]] | None:
        """Ask; return None if the server has no such table, or this user may not read it."""
        try:
            named = {"since": since_ms, **parameters}
            return list(self._client.query(sql, parameters=named).result_rows)
        except ClickHouseError as error:
            if error_code(error) == _DENIED or is_permanent(error):
                return None
            raise failure(error, "asking what the server recorded") from error


def why_removed(rules: Nature, parts: Parts | None, deletes: int | None, stamp: str) -> str:
    """Return why rows of a table, or their block's id, may have been removed since a claim.

    "": none were. `parts` and `deletes`: of the table since then; None where the log may lack some,
    or they are not known.
    """
    reasons = []
    if parts is not None and parts.dropped:
        reasons.append(
            "the table or partitions of it were dropped, detached or replaced since then"
        )
    if parts is not None and parts.patches:
        reasons.append("rows were updated or deleted since then")
    if parts is None and rules.patched:
        reasons.append(
            "whether rows were updated or deleted since then is not known (no whole part log)"
        )
    if deletes is None or deletes == FORGOTTEN:
        shown = f"system.mutations shows the last ones, by the setting {KEPT_SETTING}"
        why = "the user needs SELECT on system.mutations" if deletes is None else shown
        reasons.append(f"whether rows were deleted since then is not known ({why})")
    elif deletes:
        reasons.append(f"rows were deleted since then, or lost their {stamp}")
    return ", ".join(reasons)


def why_fewer(table: str, causes: Iterable[str], evidence: ServerRecords) -> str:
    """Return why rows of the table may be gone, or not be seen; "": they would be seen.

    `causes`: reasons; empty ones are none. `evidence` tells of a policy whatever else is known.
    """
    if reasons := [cause for cause in causes if cause]:
        return ", ".join(filter(None, [*reasons, evidence.filtered(table)]))
    return evidence.hidden(table)


def inserted_since(rules: Nature, since: int, newest: int, parts: Parts | None) -> int | None:
    """Return the most parts that were inserted since a claim; None where nothing bounds them.

    `since`: the insert counter before the claim; -1 where it had none; `parts`: what the part log
    has since the claim; None where it may lack some.
    """
    if since < 0 or rules.window.counter == "none" or (parts is not None and parts.dropped):
        return None  # with a dropped partition the tokens of its parts are forgotten
    if rules.window.counter == "log":
        # An empty log has the number of the first entry, 0. One of ATTACH PARTITION FROM brings
        # many parts, each with a token up to 26.6; without any entry there came none.
        came = max(newest - since, newest == 0) if since <= newest else None
        return max(came, parts.inserted) if came and parts is not None else came
    if parts is not None:
        # A table numbers each inserted part. Merges and mutations give their parts the numbers of
        # those before; what else takes numbers, as ATTACH does, makes this only larger.
        return max(parts.inserted, newest - since)
    # Of a table without partitions the newest part goes only together with all others.
    return newest - since if since <= newest and not rules.partitioned else None
