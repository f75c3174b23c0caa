"""The tables' columns as ClickHouse has them now.

Receives table names, gives their columns and uuid from ClickHouse's system tables.
Names travel as bound parameters and are compared, never pasted into SQL. Never
writes, never decides what a change means: relay.schema.evolution does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from clickhouse_connect.driver.exceptions import ClickHouseError

from relay import names
from relay.clickhouse.error_text import answer_line, unanswered
from relay.clickhouse.errors import PASSING, RAISE_THE_LIMIT, RIGHTS, About, about
from relay.clickhouse.replicas import connected, reading
from relay.errors import ErrorPage, Refused, Unavailable
from relay.schema.evolution import ColumnDef

if TYPE_CHECKING:
    from collections.abc import Collection

    from clickhouse_connect.driver.client import Client

    from relay.config.settings import ClickHouse

CONNECT_SECONDS = 10
ANSWER_SECONDS = 30

# A view holds no rows and a dictionary takes none; both list columns like tables.
_TARGETS = """t.database NOT IN ('system', 'information_schema', 'INFORMATION_SCHEMA')
  AND t.engine NOT IN ('View', 'Dictionary')"""
_COLUMNS = """
SELECT c.database, c.table, toString(t.uuid),
    t.engine = 'MergeTree' AND t.partition_key = '' AND empty(t.dependencies_table)
        AND position(t.engine_full, ' TTL ') = 0,
    c.name, c.type, c.default_kind
FROM system.columns AS c
INNER JOIN system.tables AS t ON t.database = c.database AND t.name = c.table
WHERE {where}
  AND {targets}
ORDER BY c.database, c.table, c.position
"""
_NAMES = "SELECT t.database, t.name FROM system.tables AS t WHERE {targets}"
_SOME = (
    "c.database IN {databases:Array(String)} AND c.table IN {names:Array(String)} "
    "AND concat(c.database, '.', c.table) IN {tables:Array(String)}"
)


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


class Catalogue:
    """Reads columns; connects when first asked, and anew after the server was away.

    Args:
        clickhouse: how to reach it.
    """

    def __init__(self, clickhouse: ClickHouse) -> None:
        self._clickhouse = clickhouse
        self._client: Client | None = None

    def read(self, tables: Collection[str] | None = None) -> dict[str, TableColumns]:
        """Return columns of these tables, or of all; a table that is not there is left out.

        Databases of ClickHouse's own, views and dictionaries are left out, as is
        every name that is no `database.table` in plain identifiers.

        Raises:
            Unavailable: ClickHouse did not answer, or cannot just now.
            Refused: it answered no.
        """
        parameters: dict[str, list[str]] = {}
        if tables is not None:
            asked = sorted(filter(names.is_table_name, tables))
            if not asked:
                return {}
            parts = [names.split_table(table) for table in asked]
            parameters = {
                "tables": asked,
                "databases": sorted({database for database, _ in parts}),
                "names": sorted({name for _, name in parts}),
            }
        rows = self._query(
            _COLUMNS.replace("{where}", _SOME if tables is not None else "1"), parameters
        )
        about: dict[str, tuple[str, bool]] = {}
        columns: dict[str, list[ColumnDef]] = {}
        for database, table, uuid, stays, *column in rows:
            name = f"{database}.{table}"
            if names.is_table_name(name):
                about[name] = uuid, bool(stays)
                columns.setdefault(name, []).append(ColumnDef(*column))
        return {
            name: TableColumns(uuid, tuple(columns[name]), stays)
            for name, (uuid, stays) in about.items()
        }

    def names(self) -> list[str]:
        """Return the names of all tables that `read` would give.

        Raises:
            Unavailable, Refused: as `read`.
        """
        rows = self._query(_NAMES, {})
        found = (f"{database}.{table}" for database, table in rows)
        return sorted(name for name in found if names.is_table_name(name))

    def close(self) -> None:
        """Close the connection; the next `read` makes another."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _query(self, sql: str, parameters: dict[str, list[str]]) -> Any:
        try:
            if self._client is None:
                self._client = connect(self._clickhouse)
            return self._client.query(
                sql.replace("{targets}", _TARGETS), parameters=parameters
            ).result_rows
        except ClickHouseError as error:
            self.close()
            raise translated(error, self._clickhouse, "read the tables' columns") from error


def connect(clickhouse: ClickHouse) -> Client:
    """Return a client over HTTP; queries of several threads may share it.

    Raises:
        ClickHouseError: see `translated`.
    """
    return connected(
        clickhouse,
        clickhouse.secret(),
        lambda error: getattr(error, "code", None) is not None,
        connect_timeout=CONNECT_SECONDS,
        send_receive_timeout=ANSWER_SECONDS,
        settings=reading(clickhouse),
    )


def translated(error: ClickHouseError, clickhouse: ClickHouse, doing: str) -> Unavailable | Refused:
    """Return what an error of the client means to the reader.

    Args:
        error: from the client.
        clickhouse: where it came from.
        doing: what was wanted, as an infinitive.
    """
    code = getattr(error, "code", None)
    where = f"ClickHouse at {clickhouse.url} (user {clickhouse.user})"
    if code is None:
        said = unanswered(error)
        return Unavailable(
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
        return Unavailable(f"{where} cannot {doing} now: {text}", next_step)
    return Refused(
        f"{where} refused to {doing}: {text}",
        "check clickhouse.user, its password and its rights (SHOW COLUMNS, SHOW TABLES, INSERT)",
        page=ErrorPage.CREDENTIALS if what is About.USER else "",
    )
