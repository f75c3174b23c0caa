"""Asks ClickHouse about the tables that a rewind would touch, and the ledger. Changes no row."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from clickhouse_connect.driver.client import Client

from relay import names
from relay.clickhouse.http_pool import in_urls
from relay.clickhouse.quoting import quoted_table, readable, readable_user
from relay.clickhouse.table_engine import has_ttl
from relay.config.settings import Settings
from relay.errors import Refused, Unavailable
from relay.operate.doctor.ask.clickhouse import ClickHouseQuestions, connected
from relay.operate.doctor.facts import TargetFacts
from relay.operate.rewind.removal import CountedRows, RerunTable

# A block is claimed before it is inserted, and the claim says whether the column was there.
_UNSTAMPED = """
SELECT block FROM {ledger:Identifier}.ledger
WHERE app = {app:String} AND table IN {tables:Array(String)}
GROUP BY block HAVING countIf(state = 'prepared' AND NOT stamped) > 0
"""
_NOTED = """
SELECT DISTINCT block FROM {ledger:Identifier}.ledger
WHERE app = {app:String} AND table = '' AND state = 'position' AND block IN {rows:Array(String)}
"""
_LOADED = """
SELECT table, block, max(rows) FROM {ledger:Identifier}.ledger
WHERE app = {app:String} AND table IN {tables:Array(String)} AND state = 'loaded'
GROUP BY table, block
"""
# An id is `app:database.table:partition:epoch:offset`; of another app it is no lost one.
_CARRIED = """
SELECT if(position({column:Identifier}, {within:String}) > 0, toString({column:Identifier}), ''),
       count()
FROM {database:Identifier}.{name:Identifier} GROUP BY 1
"""
_SETTLED = """
SELECT block, max(state = 'loaded'), max(state = 'discarded'), max(rows)
FROM {ledger:Identifier}.ledger
WHERE app = {app:String} AND table = {table:String} AND block IN {blocks:Array(String)}
GROUP BY block
"""
_LEFT = """
SELECT DISTINCT toString({column:Identifier}) FROM {database:Identifier}.{name:Identifier}
WHERE {column:Identifier} IN {blocks:Array(String)}
"""
# A deletion goes on when whoever asked for it has gone; one that comes later waits for it, on all
# replicas, also on one that has not heard of it yet: its own system.mutations would not show it.
# That this one deletes nothing is known to whoever reads later what was deleted
# (relay.clickhouse.removing_statements, loader.clickhouse.server_records).
WAIT = "ALTER TABLE {table} DELETE WHERE 0 SETTINGS mutations_sync = 2"
_DELETE = "ALTER DELETE"
_LEDGER = "EXISTS TABLE {ledger:Identifier}.ledger"
"""Refused where this user may not know; system.tables would just not name it."""
_EXISTS = "EXISTS TABLE {database:Identifier}.{name:Identifier}"
"""As of the ledger."""


def look(settings: Settings, tables: Collection[str]) -> dict[str, RerunTable]:
    """Return the tables as they are.

    Raises:
        Unavailable: ClickHouse did not answer, or one of the tables came back meanwhile.
        Refused: it said no to one of the questions, or this user may not see one of the tables.
    """
    with contextlib.closing(ClickHouseQuestions(settings)) as server:
        facts = server.look(tables, _DELETE)
    for question in facts.unasked:
        if "tables" in question.what:
            step = question.mend or "correct what the message names"
            raise Refused(f"{question.what}: {question.reason}", step)
    _check_gone(settings, [name for name, table in facts.tables.items() if table is None])
    unstamped = _unstamped(settings, tables)
    return {name: _target(settings, name, table, unstamped) for name, table in facts.tables.items()}


def _unstamped(settings: Settings, tables: Collection[str]) -> frozenset[str]:
    """The blocks whose rows, if there are any, may be without their id."""
    return _ledger_blocks(settings, _UNSTAMPED, "tables", tables)


def _check_gone(settings: Settings, tables: Collection[str]) -> None:
    """Check that tables which the server does not list are gone, and not hidden from this user."""
    if not tables:
        return
    with connected(settings, "say whether a table is gone") as client:
        for table in tables:
            database, name = names.split_table(table)
            if _rows(client, _EXISTS, database=database, name=name)[0][0]:
                raise Unavailable(f"{table} came back meanwhile", "run it again")


def _target(
    settings: Settings, name: str, table: TargetFacts | None, unstamped: frozenset[str]
) -> RerunTable:
    if table is None:
        return RerunTable(there=False)
    column, user = settings.loader.block_column, readable_user(settings.clickhouse.user)
    denied = _DELETE in table.missing
    return RerunTable(
        there=True,
        engine=table.engine,
        stamped=column in table.columns,
        views=tuple(view.name for view in table.views),
        unstamped=unstamped,
        policies=table.policies,
        grant=f"GRANT {_DELETE} ON {readable(name)} TO {user}" if denied else "",
        expires=has_ttl(table.create, column),
    )


def counted(settings: Settings, blocks: Mapping[str, Collection[str]]) -> dict[str, CountedRows]:
    """Count the rows of tables by the block ids that they carry, and those that the ledger has.

    The ledger is asked first: a block is called loaded when its rows are there. A table of which it
    calls none of these blocks loaded is not counted, and not in the answer.

    The tables have the block-id column; `blocks` are ids of sealed blocks.

    Raises:
        Unavailable: ClickHouse did not answer within loader.insert_timeout_seconds.
        Refused: it said no.
    """
    seconds = settings.loader.insert_timeout_seconds
    with connected(settings, "count rows by their block ids", seconds) as client:
        return {
            table: _carried(client, settings, table, loaded)
            for table, loaded in _loaded(client, settings, blocks).items()
        }


def removed(settings: Settings, blocks: Mapping[str, Collection[str]]) -> frozenset[str]:
    """Return those of these sealed blocks whose rows are gone, or never come: they are discarded.

    Raises:
        Unavailable: ClickHouse did not answer, or is still deleting rows, for
            loader.insert_timeout_seconds.
        Refused: it said no.
    """
    tables, seconds = look(settings, blocks), settings.loader.insert_timeout_seconds
    with connected(settings, "look for the rows of blocks", seconds) as client:
        return frozenset(
            block
            for table, ids in blocks.items()
            if tables[table].stamped or not tables[table].there
            for block in _without_rows(client, settings, table, ids, there=tables[table].there)
        )


def _without_rows(
    client: Client, settings: Settings, table: str, ids: Collection[str], *, there: bool
) -> Iterator[str]:
    database, name = names.split_table(table)
    ledger = _ledger_of(settings)
    target = {"column": settings.loader.block_column, "database": database, "name": name}
    if there:
        client.command(WAIT.format(table=quoted_table(table)))
    if not _rows(client, _LEDGER, **ledger)[0][0]:
        return
    for some in in_urls(sorted(ids), len):
        left = set[str]()
        if there:
            left = {str(row[0]) for row in _rows(client, _LEFT, **target, blocks=some)}
        settled = _rows(client, _SETTLED, **ledger, table=table, blocks=some)
        for block, loaded, discarded, number in settled:
            if (discarded and not loaded) or (loaded and number and block not in left):
                yield str(block)


def _loaded(
    client: Client, settings: Settings, blocks: Mapping[str, Collection[str]]
) -> dict[str, dict[str, int]]:
    """Rows of these blocks, and of what was left out of them, that the ledger calls loaded."""
    ledger = _ledger_of(settings)
    loaded: dict[str, dict[str, int]] = {}
    if not _rows(client, _LEDGER, **ledger)[0][0]:
        return loaded
    ids = {table: frozenset(of_table) for table, of_table in blocks.items()}
    for some in in_urls(sorted(ids), len):
        for table, block, number in _rows(client, _LOADED, **ledger, tables=some):
            if names.sealed(block) in ids[table]:
                loaded.setdefault(table, {})[block] = int(number)
    return loaded


def _carried(
    client: Client, settings: Settings, table: str, loaded: Mapping[str, int]
) -> CountedRows:
    database, name = names.split_table(table)
    column = settings.loader.block_column
    asked = {"column": column, "within": f":{table}:", "database": database, "name": name}
    carried = {str(block): int(count) for block, count in _rows(client, _CARRIED, **asked)}
    return CountedRows(loaded, carried, carried.pop("", 0))


def position_rows(settings: Settings, rows: Collection[str]) -> frozenset[str]:
    """Return which of these rows about the journal the ledger has, by the `block` of each.

    Raises:
        Unavailable: ClickHouse did not answer.
        Refused: it said no.
    """
    return _ledger_blocks(settings, _NOTED, "rows", rows)


def _ledger_blocks(
    settings: Settings, question: str, name: str, values: Collection[str]
) -> frozenset[str]:
    """Ask the ledger about these, which the question has as the parameter `name`, in pieces."""
    ledger = _ledger_of(settings)
    with connected(settings, "read the ledger") as client:
        if not _rows(client, _LEDGER, **ledger)[0][0]:
            return frozenset()
        return frozenset(
            str(row[0])
            for some in in_urls(sorted(values), len)
            for row in _rows(client, question, **ledger, **{name: some})
        )


def _ledger_of(settings: Settings) -> dict[str, Any]:
    return {"ledger": settings.loader.database, "app": settings.app}


def _rows(client: Client, question: str, **parameters: Any) -> Sequence[Sequence[Any]]:
    return client.query(question, parameters=parameters).result_rows
