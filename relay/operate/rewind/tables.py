"""Asks ClickHouse about the tables that a rewind would touch, and the ledger. Never writes.

Receives table names, gives removal.RerunTable of each; says which notes the ledger has.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from clickhouse_connect.driver.exceptions import ClickHouseError

from relay.clickhouse.http_pool import in_urls
from relay.errors import Refused
from relay.operate.doctor.ask.clickhouse import ClickHouseQuestions
from relay.operate.rewind.removal import RerunTable
from relay.schema.catalogue import connect, translated

if TYPE_CHECKING:
    from relay.config.settings import Settings
    from relay.operate.doctor.facts import TargetFacts

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
_LEDGER = "EXISTS TABLE {ledger:Identifier}.ledger"
"""Refused where this user may not know; system.tables would just not name it."""


def look(settings: Settings, tables: Collection[str]) -> dict[str, RerunTable]:
    """Return the tables as they are.

    Raises:
        Unavailable: ClickHouse did not answer.
        Refused: it said no to one of the questions.
    """
    with contextlib.closing(ClickHouseQuestions(settings)) as server:
        found = server.look(tables)
    asked = [one for one in found.unasked if "tables" in one.what]
    if asked:
        raise Refused(
            f"{asked[0].what}: {asked[0].reason}", asked[0].mend or "correct what the message names"
        )
    unstamped = _unstamped(settings, tables)
    column = settings.loader.block_column
    return {name: _target(table, column, unstamped) for name, table in found.tables.items()}


def _target(table: TargetFacts | None, column: str, unstamped: frozenset[str]) -> RerunTable:
    if table is None:
        return RerunTable(there=False)
    return RerunTable(
        there=True,
        engine=table.engine,
        stamped=column in table.columns,
        views=tuple(view.name for view in table.views),
        unstamped=unstamped,
    )


def _unstamped(settings: Settings, tables: Collection[str]) -> frozenset[str]:
    """Blocks whose rows, if there are any, may be without their id."""
    return _of_ledger(settings, _UNSTAMPED, "tables", tables)


def position_rows(settings: Settings, rows: Collection[str]) -> frozenset[str]:
    """Return which of these rows about the journal the ledger has, by the `block` of each.

    Raises:
        Unavailable: ClickHouse did not answer.
        Refused: it said no.
    """
    return _of_ledger(settings, _NOTED, "rows", rows)


def _of_ledger(
    settings: Settings, question: str, name: str, asked: Collection[str]
) -> frozenset[str]:
    """Ask the ledger about these, which the question has as the parameter `name`, in pieces."""
    places: dict[str, Any] = {"ledger": settings.loader.database, "app": settings.app}
    try:
        client = connect(settings.clickhouse)
        with contextlib.closing(client):
            if not client.query(_LEDGER, parameters=places).result_rows[0][0]:
                return frozenset()
            answers = (
                client.query(question, parameters={**places, name: some})
                for some in in_urls(sorted(asked), len)
            )
            return frozenset(str(row[0]) for rows in answers for row in rows.result_rows)
    except ClickHouseError as error:
        raise translated(error, settings.clickhouse, "read the ledger") from error
