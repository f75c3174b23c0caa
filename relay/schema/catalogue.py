"""The tables' columns as ClickHouse has them now.

Receives table names, gives their columns and uuid from ClickHouse's system tables.
Names travel as bound parameters and are compared, never pasted into SQL. Never
writes, never decides what a change means: relay.schema.evolution does.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from relay import names
from relay.clickhouse.error_text import answer_line, unanswered
from relay.clickhouse.errors import PASSING, RAISE_THE_LIMIT, RIGHTS, About, about, is_answer
from relay.clickhouse.http_pool import in_urls
from relay.clickhouse.replica_log import (
    IS_ALTER,
    MAY_HAVE_READ_LOG,
    READ_WHOLE_LOG,
    SEES_LOGS,
    empty_logs,
)
from relay.clickhouse.replicas import connected, reading
from relay.clickhouse.table_engine import LISTED_HERE
from relay.config.settings import ClickHouse
from relay.errors import ClickHouseAway, ErrorPage, Refused
from relay.schema.evolution import ColumnDef

log = logging.getLogger(__name__)

CONNECT_SECONDS = 10
ANSWER_SECONDS = 30

# A view holds no rows and a dictionary takes none; both list columns like tables.
_TARGETS = """t.database NOT IN ('system', 'information_schema', 'INFORMATION_SCHEMA')
  AND t.engine NOT IN ('View', 'Dictionary')"""
_PLAIN = "t.engine = 'MergeTree' AND t.partition_key = '' AND empty(t.dependencies_table)"
_REPLICATED = "startsWith(t.engine, 'Replicated')"
_COLUMNS = """
SELECT c.database, c.table, toString(t.uuid), {plain} AND position(t.engine_full, ' TTL ') = 0,
    {replicated}, c.name, c.type, c.default_kind
FROM system.columns AS c
INNER JOIN system.tables AS t ON t.database = c.database AND t.name = c.table
WHERE {targets}
  AND t.database IN {databases:Array(String)}
  AND c.database IN {databases:Array(String)} AND c.table IN {names:Array(String)}
  AND concat(c.database, '.', c.table) IN {tables:Array(String)}
ORDER BY c.database, c.table, c.position
"""
# engine_full is two thirds of what _COLUMNS costs the server, which writes each table's definition
# out for it. It alone has a TTL; what changes a TTL sets the modification time.
_DIGESTS = """
SELECT t.database, t.name, toString(t.uuid), {plain}, c.digest,
    toUnixTimestamp(t.metadata_modification_time) AS modified,
    modified > toUnixTimestamp(now()) - {clock_seconds:Int64}
FROM system.tables AS t
INNER JOIN (
    SELECT database, table, sum(sipHash64(position, name, type, default_kind)) AS digest
    FROM system.columns
    WHERE database IN {databases:Array(String)} AND table IN {names:Array(String)}
    GROUP BY database, table
) AS c ON t.database = c.database AND t.name = c.table
WHERE {targets}
  AND t.database IN {databases:Array(String)} AND t.name IN {names:Array(String)}
  AND concat(t.database, '.', t.name) IN {tables:Array(String)}
"""
# Asked in this order.
_LOGS = f"""
SELECT database, table, {READ_WHOLE_LOG}, {MAY_HAVE_READ_LOG}, zookeeper_name, zookeeper_path
FROM system.replicas
WHERE database IN {{databases:Array(String)}} AND table IN {{names:Array(String)}}
"""  # noqa: S608 - a constant
_ALTERS_TO_MAKE = f"""
SELECT DISTINCT database, table FROM system.replication_queue WHERE {IS_ALTER}
  AND database IN {{databases:Array(String)}} AND table IN {{names:Array(String)}}
"""  # noqa: S608 - a constant
_NAMES = f"SELECT t.database, t.name FROM system.tables AS t WHERE {{targets}} AND t.{LISTED_HERE}"  # noqa: S608 - a constant
_CLOCK_SECONDS = 2
"""A modification time is in whole seconds: one so recent may also be that of the next change."""

Digest = tuple[object, ...]
"""Of a table: it changes when anything in its TableColumns does."""


class TableColumns(NamedTuple):
    """A table as ClickHouse describes it."""

    uuid: str
    """Tells a table from one of the same name made later."""
    columns: tuple[ColumnDef, ...]
    """In the table's order."""
    plain: bool = True
    """Whether an INSERT into it is one step, and its rows stay as they were inserted; else, as with
    views behind it or on several servers, the loader inserts its blocks one by one
    (loader.core.table_rules.Nature, which decides; a budget that goes by this does not)."""
    replicated: bool = False
    """Whether other servers have the table, too, each of which makes an ALTER in its own time."""


class Catalogue:
    """Reads columns; connects when first asked, and anew after the server was away.

    Args:
        clickhouse: how to reach it.
        ask: calls what asks the server one question, about these databases; for who cannot wait as
            long as that may take, relay.schema.beside.
    """

    def __init__(
        self,
        clickhouse: ClickHouse,
        ask: Callable[[Callable[[], Any], Hashable], Any] = lambda question, _: question(),
    ) -> None:
        self._clickhouse, self._ask = clickhouse, ask
        self._client: Client | None = None
        self._known: dict[str, tuple[Digest, TableColumns]] = {}
        self._may_ask_replicas = True
        self._undecided = ""  # why it was not known last whether logs are empty

    def read(self, tables: Collection[str] | None = None) -> dict[str, TableColumns]:
        """Return columns of these tables, or of all; a table that is not there is left out.

        Databases of ClickHouse's own, views and dictionaries are left out, as is
        every name that is no `database.table` in plain identifiers. A table that has not changed
        since the last call is not read again, and has the same object.

        Raises:
            ClickHouseAway: it did not answer, or cannot just now.
            Refused: it answered no.
        """
        asked = self.names() if tables is None else sorted(filter(names.is_table_name, tables))
        if not asked:
            return {}
        # First: what changes in between is read again next time.
        digests = self._read_digests(asked)
        kept = {
            table: self._known[table]
            for table, digest in digests.items()
            if table in self._known and self._known[table][0] == digest
        }
        if changed := sorted(digests.keys() - kept.keys()):
            read = self._read_columns(changed)
            kept |= {table: (digests[table], columns) for table, columns in read.items()}
        for table in asked:
            self._known.pop(table, None)
        self._known |= {table: entry for table, entry in kept.items() if digests[table]}
        return {table: columns for table, (_, columns) in kept.items()}

    def _read_digests(self, tables: Sequence[str]) -> dict[str, Digest]:
        """Of each table that is there; empty where it would not show the next change."""
        rows = self._query_some(_DIGESTS, tables, clock_seconds=_CLOCK_SECONDS)
        return {
            f"{database}.{table}": () if recent else tuple(digest)
            for database, table, *digest, recent in rows
        }

    def _read_columns(self, tables: Sequence[str]) -> dict[str, TableColumns]:
        columns: defaultdict[str, list[ColumnDef]] = defaultdict(list)
        facts: dict[str, tuple[str, bool, bool]] = {}
        for database, table, uuid, stays, replicated, *column in self._query_some(_COLUMNS, tables):
            name = f"{database}.{table}"
            columns[name].append(ColumnDef(*column))
            facts[name] = uuid, bool(stays), bool(replicated)
        return {
            name: TableColumns(uuid, tuple(columns[name]), stays, replicated)
            for name, (uuid, stays, replicated) in facts.items()
        }

    def caught_up(self, tables: Collection[str]) -> set[str]:
        """Return those of these replicated tables of which the server has made every ALTER.

        All of them, where the user may not know: then what the server shows is believed. But of a
        table whose log is empty, or has one entry that was not read, only who may ask Keeper knows.

        Raises:
            ClickHouseAway: as `read`.
        """
        if not self._may_ask_replicas:
            return set(tables)
        try:
            logs = self._query_some(_LOGS, sorted(tables))
            behind = {
                f"{db}.{name}" for db, name in self._query_some(_ALTERS_TO_MAKE, sorted(tables))
            }
        except Refused as refused:
            self._may_ask_replicas = False
            log.warning(
                "cannot ask whether a replica of ClickHouse has made every ALTER: grant SELECT on "
                "system.replicas and system.replication_queue, then start again",
                extra={"why": refused.message},
            )
            return set(tables)
        read = {f"{database}.{table}" for database, table, has_read, *_ in logs if has_read}
        places = {
            f"{database}.{table}": (keeper, path)
            for database, table, _, may_have_read, keeper, path in logs
            if may_have_read
        }
        return ((read | self._with_empty_logs(places)) - behind).intersection(tables)

    def _with_empty_logs(self, places: Mapping[str, tuple[str, str]]) -> set[str]:
        """Those of these tables whose logs have no entry; none where that cannot be asked.

        Args:
            places: by table, the Keeper and the path in it.
        """
        empty: set[tuple[str, str]] = set()
        try:
            for keeper in sorted({keeper for keeper, _ in places.values()}):
                paths = sorted({path for at, path in places.values() if at == keeper})
                for some in in_urls(paths, len):
                    rows = self._query(empty_logs(keeper), {"paths": some, "keeper": keeper})
                    empty |= {(keeper, path) for (path,) in rows}
        except (Refused, ClickHouseAway) as error:  # the tables stay as others registered them
            if error.message != self._undecided:
                log.warning(
                    "cannot ask whether the replication log of a table is empty or begins with an "
                    "ALTER that the replica has not read: its change counts once a row came into "
                    "the table, or with GRANT %s ON system.zookeeper",
                    SEES_LOGS,
                    extra={"tables": sorted(places), "why": error.message},
                )
            self._undecided = error.message
        else:
            self._undecided = ""
        return {table for table, place in places.items() if place in empty}

    def names(self) -> list[str]:
        """Return the names of all tables that `read` would give.

        Without those that another server lists: it may be away, or silent, and nobody has named it.

        Raises:
            ClickHouseAway, Refused: as `read`.
        """
        rows = self._query(_NAMES, {})
        listed = (f"{database}.{table}" for database, table in rows)
        return sorted(name for name in listed if names.is_table_name(name))

    def close(self) -> None:
        """Close the connection; the next `read` makes another."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _query_some(self, sql: str, tables: Sequence[str], **more: int) -> list[Any]:
        """Ask in pieces: messages may name anything, and no server takes names without end."""
        answered: list[Any] = []
        for some in in_urls(tables, len):
            parts = [names.split_table(table) for table in some]
            answered += self._query(sql, {
                "tables": some,
                "databases": sorted({database for database, _ in parts}),
                "names": sorted({name for _, name in parts}),
                **more,
            })  # fmt: skip
        return answered

    def _query(self, sql: str, parameters: dict[str, Any]) -> Any:
        sql = sql.replace("{targets}", _TARGETS).replace("{plain}", _PLAIN)
        sql = sql.replace("{replicated}", _REPLICATED)
        try:
            about = tuple(parameters.get("databases", ()))
            return self._ask(lambda: self._answer(sql, parameters), about)
        except (ClickHouseError, TimeoutError) as error:
            raise translated(error, self._clickhouse, "read the tables' columns") from error

    def _answer(self, sql: str, parameters: dict[str, Any]) -> Any:
        client = self._client  # of now: another thread may let go of it while this one asks
        try:
            if client is None:
                client = self._client = connect(self._clickhouse)
            return client.query(sql, parameters=parameters).result_rows
        except ClickHouseError:
            if client is self._client:
                self.close()
            raise


def connect(clickhouse: ClickHouse, seconds: float | None = None) -> Client:
    """Return a client over HTTP that waits so long for an answer, or ANSWER_SECONDS.

    Queries of several threads may share it.

    Raises:
        ClickHouseError: see `translated`.
    """
    return connected(
        clickhouse,
        clickhouse.secret(),
        is_answer,
        connect_timeout=CONNECT_SECONDS,
        send_receive_timeout=int(seconds or ANSWER_SECONDS),
        settings=reading(clickhouse),
    )


def is_late(error: ClickHouseAway) -> bool:
    """Return whether there was no answer yet; the server may still have the question."""
    return isinstance(error.__cause__, TimeoutError)


def translated(
    error: ClickHouseError | TimeoutError, clickhouse: ClickHouse, doing: str
) -> ClickHouseAway | Refused:
    """Return what an error of the client means to the reader; `doing` is an infinitive."""
    code = getattr(error, "code", None)
    where = f"ClickHouse at {clickhouse.url} (user {clickhouse.user})"
    if code is None:
        said = unanswered(error)
        return ClickHouseAway(
            f"{said} (while it was to {doing})"
            if said
            else f"cannot ask {where} to {doing}: {error}",
            "check clickhouse.url and that the server runs",
        )
    text, what = answer_line(str(error)), about(str(error), code)
    # One table that cannot be looked at, or an error that is not listed, is no reason to end:
    # what the relay knows of the other tables stays valid.
    some = what in {About.TABLE, About.UNKNOWN} and code not in RIGHTS
    if what in PASSING or some:
        load = "wait, or check the server's load"
        next_step = RAISE_THE_LIMIT if what is About.SIZE else load
        return ClickHouseAway(f"{where} cannot {doing} now: {text}", next_step)
    return Refused(
        f"{where} refused to {doing}: {text}",
        "check clickhouse.user, its password and its rights (SHOW COLUMNS, SHOW TABLES, INSERT)",
        page=ErrorPage.CREDENTIALS if what is About.USER else "",
    )
