"""Reads what ClickHouse says of blocks: rows that carry their ids, and the loader's ledger.

Never writes.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from clickhouse_connect.driver.exceptions import ClickHouseError

from relay import names
from relay.config.settings import Settings
from relay.operate.verify.judge.contents import RefusedMessages
from relay.operate.verify.judge.ledger_history import History, WaitingBlock
from relay.operate.verify.read.optional import Optional
from relay.records_pb2 import Block
from relay.schema.catalogue import connect, translated

STATE = """multiIf(
    countIf(state = 'loaded') > 0, 'loaded', countIf(state = 'discarded') > 0, 'discarded',
    countIf(state = 'dead') > 0, 'dead',
    argMax(state, (attempt, state != 'prepared', claim)))"""
"""A block's state, of its rows in the ledger; their rank is the loader's (loader.core.plan)."""
RESTS = "state IN ('parked', 'aside')"
STATE_NOW = (
    f"if({STATE} = 'prepared' AND countIf({RESTS}) > 0, "
    f"argMaxIf(state, (attempt, claim), {RESTS}), {STATE})"
)
"""The same, where a block that is tried again is still what it was before."""
_HISTORY = (
    f"SELECT block, {STATE_NOW}"  # noqa: S608 - a constant
    """,
    toUnixTimestamp64Milli(minIf(at, state = 'prepared')),
    toUnixTimestamp64Milli(minIf(at, state = 'loaded')),
    countIf(state = 'prepared'),
    countIf(state = 'parked' OR (state = 'loaded' AND reason != '')) > 0,
    countIf(state = 'loaded' AND startsWith(reason, {said:String})) > 0,
    countIf(state = 'prepared' AND NOT stamped AND {inserts}) > 0
FROM {ledger:Identifier}.ledger
WHERE app = {app:String} AND table = {table:String} AND state != 'position'
GROUP BY block
"""
)
_STAMPED = """
SELECT block, groupArray(claim) FROM {ledger:Identifier}.ledger
WHERE app = {app:String} AND table = {table:String} AND state = 'prepared' AND stamped
AND block IN (
    SELECT block FROM {ledger:Identifier}.ledger
    WHERE app = {app:String} AND table = {table:String} AND state = 'prepared' AND NOT stamped)
GROUP BY block
"""
_INSERTS = "sent != 'dead letters' AND transform != '-'"
"""Whether anything may be inserted under a claim."""
_WAITING = f"""
SELECT table, block, argMaxIf(record, (attempt, claim), {RESTS}), {STATE_NOW} AS now
FROM {{ledger:Identifier}}.ledger WHERE app = {{app:String}} AND state != 'position'
AND block IN (
    SELECT block FROM {{ledger:Identifier}}.ledger WHERE app = {{app:String}} AND {RESTS})
GROUP BY table, block HAVING now IN ('parked', 'aside') ORDER BY table, block
"""  # noqa: S608 - constants
_DISCARDED = """
SELECT block, argMax(reason, at) FROM {ledger:Identifier}.ledger
WHERE app = {app:String} AND table = {table:String} AND state = 'discarded' GROUP BY block
"""
_READ = "SELECT 1 FROM {database:Identifier}.{name:Identifier} LIMIT 0"
_NOT_THERE = frozenset({60, 81})
"""UNKNOWN_TABLE, UNKNOWN_DATABASE: a user who may not know hears 497 instead."""
_HAS_COLUMN = """
SELECT count() FROM system.columns
WHERE database = {ledger:String} AND table = 'ledger' AND name = {column:String}
"""
_MADE = """
SELECT block, argMax(rows, (state = 'loaded', rows)) FROM {ledger:Identifier}.ledger
WHERE app = {app:String} AND table = {table:String} AND state != 'position'
GROUP BY block HAVING countIf(transform NOT IN ('', '-')) > 0
"""
_LEFT_OUT = f"""
SELECT block, argMaxIf(rows, at, state = 'parked') FROM {{ledger:Identifier}}.ledger
WHERE app = {{app:String}} AND table = {{table:String}} AND endsWith(block, '{names.LEFT_OUT}')
GROUP BY block
"""  # noqa: S608 - a constant
_REFUSED = f"""
SELECT block, {STATE}, argMaxIf(record, attempt, state != 'prepared' AND record != ''),
       minIf(seen, sent = 'dead letters'), countIf(sent = 'dead letters')
FROM {{ledger:Identifier}}.ledger
WHERE app = {{app:String}} AND table = {{table:String}} AND endsWith(block, '{names.LEFT_OUT}')
GROUP BY block
"""  # noqa: S608 - constants


class LandedRows:
    """Questions to ClickHouse.

    Raises (every method):
        Unavailable: no answer.
        Refused: the user may not ask.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        try:
            self._client = connect(settings.clickhouse)
        except ClickHouseError as error:
            raise translated(error, settings.clickhouse, "look at the blocks' rows") from error

    def counted(self, table: str) -> dict[str, int] | None:
        """Return rows by id of this app's blocks; None where the table has no such column."""
        database, name = names.split_table(table)
        place = {"database": database, "name": name}
        column = self._settings.loader.block_column
        columns = self._ask(
            "SELECT count() FROM system.columns WHERE database = {database:String} "
            "AND table = {name:String} AND name = {column:String} "
            "AND default_kind != 'EPHEMERAL'",
            {**place, "column": column},
        )
        if not columns[0][0]:
            self._look_into(place)
            return None
        rows = self._ask(
            "SELECT toString({column:Identifier}), count() "
            "FROM {database:Identifier}.{name:Identifier} WHERE "
            "startsWith({column:Identifier}, {prefix:String}) GROUP BY 1",
            {**place, "column": column, "prefix": f"{self._settings.app}:{table}:"},
        )
        return dict(rows)

    def has_ledger(self) -> bool:
        """Return whether there is a ledger."""
        exists = "SELECT count() FROM system.tables WHERE database = {ledger:String} "
        if self._ask(exists + "AND name = 'ledger'", self._ledger())[0][0]:
            return True
        self._look_into({"database": self._settings.loader.database, "name": "ledger"})
        return False

    def ledger(self, table: str) -> dict[str, History]:
        """Return the way of each block that the loader touched; nothing before its first run."""
        if not self.has_ledger():
            return {}
        inserts = _INSERTS if self._has_column("sent") else "1"
        about = self._ledger(table=table, said=names.SAID_LOADED)
        rows = self._ask(_HISTORY.replace("{inserts}", inserts), about)
        stamps = self._ask(_STAMPED, self._ledger(table=table)) if any(r[-1] for r in rows) else ()
        stamped = {block: frozenset(claims) for block, claims in stamps}
        return {
            block: replace(
                History(*history), unstamped=bool(bare), stamped=stamped.get(block, frozenset())
            )
            for block, *history, bare in rows
        }

    def waiting(self) -> dict[str, list[WaitingBlock]]:
        """Return by table the blocks that are parked or set aside, the journal's and older ones."""
        waiting: dict[str, list[WaitingBlock]] = {}
        for table, name, record, state in self._ask_ledger(_WAITING):
            block = Block.FromString(base64.b64decode(record)) if record else Block(id=name)
            waiting.setdefault(table, []).append(WaitingBlock(block, state))
        return waiting

    def discarded(self, table: str) -> dict[str, str]:
        """Return the reason of each block that a person gave up."""
        return dict(self._ask_ledger(_DISCARDED, table=table))

    def made(self, table: str) -> dict[str, int]:
        """Return rows of each block that went through loader.transform: maybe more or fewer.

        Of one that is not loaded yet, the most that an INSERT of it may have brought.
        """
        if not self._has_column("transform"):
            return {}
        return dict(self._ask(_MADE, self._ledger(table=table)))

    def left_out(self, table: str) -> dict[str, int]:
        """Return rows of each block that messages make which were left out of another."""
        return dict(self._ask_ledger(_LEFT_OUT, table=table))

    def refused(self, table: str, counted: Mapping[str, int] | None) -> dict[str, RefusedMessages]:
        """Return the messages that were left out of blocks, by the id of the block that they make.

        The table's rows are `counted` by block id; None where they are not.
        """
        if not self.left_out(table):
            return {}  # the ledger may be of an earlier version, without some of the columns
        refused = {}
        for name, state, record, since, claims in self._ask(_REFUSED, self._ledger(table=table)):
            block = Block.FromString(base64.b64decode(record))
            refused[name] = RefusedMessages(
                state,
                block.partition,
                frozenset(message.offset for message in block.left_out),
                since if claims else -1,
                None if counted is None else counted.get(name, 0),
            )
        return refused

    def _has_column(self, column: str) -> bool:
        """Return whether the ledger has the column; one of an earlier version may lack it."""
        return bool(self._ask(_HAS_COLUMN, self._ledger(column=column))[0][0])

    def _look_into(self, place: dict[str, Any]) -> None:
        """A table that this user may not read is as if it were not there, in system tables.

        Raises:
            Refused: it is one of those; ClickHouse's error names the GRANT.
        """
        try:
            self._client.query(_READ, parameters=place)
        except ClickHouseError as error:
            if getattr(error, "code", None) not in _NOT_THERE:
                raise translated(error, self._settings.clickhouse, "look at the blocks") from error

    def _ask_ledger(self, sql: str, **parameters: Any) -> Any:
        return self._ask(sql, self._ledger(**parameters)) if self.has_ledger() else ()

    def _ledger(self, **more: Any) -> dict[str, Any]:
        return {"ledger": self._settings.loader.database, "app": self._settings.app, **more}

    def optional(self) -> Optional:
        """Return questions through the same client that may be refused."""
        return Optional(self._client, self._settings.clickhouse.user)

    def _ask(self, sql: str, parameters: dict[str, Any]) -> Any:
        try:
            answer = self._client.query(sql, parameters=parameters)
        except ClickHouseError as error:
            raise translated(error, self._settings.clickhouse, "look at the blocks") from error
        return answer.result_rows
