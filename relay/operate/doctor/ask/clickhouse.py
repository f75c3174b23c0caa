"""Asks ClickHouse for what the doctor judges. Never writes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from relay import names
from relay.clickhouse.balancer import servers
from relay.clickhouse.hidden_rows import shown_once_there
from relay.clickhouse.http_pool import in_urls
from relay.clickhouse.quoting import quoted_table, readable, readable_user
from relay.clickhouse.table_engine import LISTED_HERE, columns_of
from relay.config.allowed_tables import LEDGER_LATER
from relay.config.settings import Settings
from relay.errors import Refused
from relay.operate.doctor.facts import (
    ClickHouseFacts,
    ClockOffset,
    Replica,
    Setting,
    TargetFacts,
    Unasked,
)
from relay.operate.doctor.grants import EVIDENCE, INPUT, READ_BY_LOADER
from relay.operate.doctor.judge import dependents
from relay.operate.doctor.judge.clickhouse import INSERTED_WITH, REQUIRED
from relay.operate.doctor.judge.dependents import SystemTable
from relay.operate.doctor.judge.row_policies import RowPolicy, hiding
from relay.operate.doctor.versions import parsed
from relay.operate.view import lost_ledger
from relay.schema.catalogue import connect, translated

_EVIDENCE = "evidence"
"""In the place of a table, whose name has a dot, of rights by which it is known what happened."""
_WINDOW_SOURCES = ("merge_tree_settings", "replicated_merge_tree_settings")
LOOKED_AT = (
    *INSERTED_WITH,
    *REQUIRED,
    "readonly",
    "insert_quorum",
    "insert_quorum_parallel",
    "max_partitions_per_insert_block",
)

_TABLES = """
SELECT database, name, toString(uuid), engine, engine_full, partition_key, create_table_query,
       as_select, arrayZip(dependencies_database, dependencies_table)
FROM system.tables
WHERE database NOT IN ('system', 'information_schema', 'INFORMATION_SCHEMA')
"""
_COLUMNS = """
SELECT database || '.' || table, groupArray((name, (type, default_kind))) FROM system.columns
WHERE database IN {databases:Array(String)} AND database || '.' || table IN {tables:Array(String)}
GROUP BY 1
"""
_PARTITIONS = """
SELECT database || '.' || table, uniqExact(partition_id) FROM system.parts
WHERE active AND database || '.' || table IN {tables:Array(String)} GROUP BY 1
"""
_REPLICAS = """
SELECT database || '.' || table, is_readonly, total_replicas, active_replicas FROM system.replicas
WHERE database || '.' || table IN {tables:Array(String)}
"""
_WINDOWS = """
SELECT name, value FROM system.{relation:Identifier}
WHERE name LIKE '%replicated_deduplication_window%'
"""
# Whom a policy is for may be a role of the user's; of a whole database, the table is `*` or empty.
_POLICIES = """
SELECT database, table, name, is_restrictive, ifNull(select_filter, '')
FROM system.row_policies
WHERE has(apply_to_list, currentUser()) OR hasAny(apply_to_list, enabledRoles())
   OR (apply_to_all AND NOT has(apply_to_except, currentUser())
       AND NOT hasAny(apply_to_except, enabledRoles()))
"""
_SETTINGS = "SELECT name, value, readonly FROM system.settings WHERE name IN {names:Array(String)}"


@contextlib.contextmanager
def connected(settings: Settings, doing: str, seconds: float | None = None) -> Iterator[Client]:
    """Connect, translate the errors meanwhile, and close; an answer may take so long."""
    try:
        with contextlib.closing(connect(settings.clickhouse, seconds)) as client:
            yield client
    except ClickHouseError as error:
        raise translated(error, settings.clickhouse, doing) from error


class ClickHouseQuestions:
    """Questions to ClickHouse.

    Raises (every method):
        Unavailable: no answer.
        Refused: user or password is wrong.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._unasked: list[Unasked] = []
        self._user = settings.clickhouse.user
        try:
            self._client = connect(settings.clickhouse)
        except ClickHouseError as error:
            raise translated(error, settings.clickhouse, "read it") from error

    def look(self, targets: Collection[str], *more_rights: str) -> ClickHouseFacts:
        """Return all facts.

        Args:
            targets: tables, as `database.table`.
            more_rights: that this user needs on each of them, beside those of a loader.
        """
        database, clickhouse = self._settings.loader.database, self._settings.clickhouse
        rows, dark = self._rows({database, *(names.split_table(name)[0] for name in targets)})
        unread = sorted(name for name in targets if names.split_table(name)[0] in dark)
        found = {
            name: dependents.table(rows, *names.split_table(name))
            for name in targets
            if name not in unread
        }
        there = {name: table for name, table in found.items() if table is not None}
        self._note_unseen(rows, there)
        ledger = dependents.table(rows, database, "ledger")
        rights = self._rights(there, ledger, more_rights, known=database not in dark)
        policies = self._policies() if there or ledger else []
        if ledger is not None:
            place = f"{database}.ledger"
            replica = self._replicas({place: ledger}).get(place)
            hidden = self._hidden(policies, place, ledger)
            ledger = replace(ledger, policies=hidden, replica=replica)
        return ClickHouseFacts(
            user=self._user,
            settings=self._setting_values(),
            windows={source: self._window_defaults(source) for source in _WINDOW_SOURCES},
            tables={**found, **self._detailed(there, rights, policies)},
            unread=tuple(unread),
            others=tuple(f"{of}.{name}" for of, name in rows),
            ledger=ledger,
            elsewhere=self._elsewhere() if ledger is None and database not in dark else None,
            missing=tuple(rights.get("", ())),
            evidence=tuple(rights.get(_EVIDENCE, ())),
            clock=self._clock(),
            unasked=tuple(self._unasked),
            version=self._client.server_version or "",
            servers=servers(clickhouse) if len(clickhouse.urls) == 1 else (),
        )

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()

    def _setting_values(self) -> dict[str, Setting]:
        what, looked_at = "settings of ClickHouse", list(LOOKED_AT)
        rows = self._ask(what, _SETTINGS, "system.settings", names=looked_at) or ()
        return {str(name): Setting(str(value), bool(fixed)) for name, value, fixed in rows}

    def _note_unseen(
        self, rows: Mapping[tuple[str, str], SystemTable], tables: Collection[str]
    ) -> None:
        """Note what gets rows of these tables and is not seen, of which nothing is judged."""
        for name in tables:
            for place in map(".".join, dependents.unseen(rows, *names.split_table(name))):
                mend = f"GRANT SHOW TABLES ON {readable(place)} TO {readable_user(self._user)}"
                why = f"{place} is gone, or hidden from this user"
                self._unasked.append(Unasked(f"what is behind {name}", why, mend))

    def _elsewhere(self) -> tuple[str, ...] | None:
        """Databases whose ledgers have entries of the app; None where its own might be hidden."""

        def ask(sql: str, parameters: dict[str, Any]) -> Sequence[Sequence[Any]]:
            try:
                return self._client.query(sql, parameters=parameters).result_rows
            except ClickHouseError as error:
                raise translated(error, self._settings.clickhouse, "read ledgers") from error

        place = readable(f"{self._settings.loader.database}.ledger")
        try:
            if not int(str(self._client.command(f"CHECK GRANT SELECT ON {place}"))):
                return None
            return lost_ledger.elsewhere(ask, self._settings.app)
        except (ClickHouseError, ValueError, Refused):
            return None

    def _rows(self, databases: set[str]) -> tuple[dict[tuple[str, str], SystemTable], set[str]]:
        """Every table; of databases that another server lists, only those that are named here.

        And those of the named databases of which the server did not say what is in them.
        """
        source, dark = "system.tables", set()
        what, listed_here = "the tables of ClickHouse", f"{_TABLES} AND {LISTED_HERE}"
        found = list(self._ask(what, listed_here, source) or ())
        for database in sorted(databases - {row[0] for row in found}):
            what, of_one = f"the tables of database {database}", "AND database = {database:String}"
            more = self._ask(what, f"{_TABLES} {of_one}", source, database=database)
            found += more or ()
            if more is None:
                dark.add(database)
        rows = [SystemTable(*row) for row in found]
        return {(row.database, row.name): row for row in rows}, dark

    def _detailed(
        self,
        tables: dict[str, TargetFacts],
        rights: dict[str, list[Any]],
        policies: Sequence[RowPolicy],
    ) -> dict[str, TargetFacts]:
        """The tables with what other system tables say of them."""
        asked = sorted(tables)
        columns = self._by_table("columns of the tables", _COLUMNS, "system.columns", asked)
        parts = self._by_table("partitions of the tables", _PARTITIONS, "system.parts", asked)
        replicas = self._replicas(tables)
        detailed = {}
        for name, table in tables.items():
            shown, counted = columns.get(name, ()), parts.get(name)
            hidden = ["SHOW COLUMNS"] if shown is not None and not shown else []
            detailed[name] = replace(
                table,
                columns={column: tuple(kind) for column, kind in shown[0]} if shown else {},
                partitions=counted[0] if counted else None,
                replica=replicas.get(name),
                missing=(*rights.get(name, ()), *hidden),
                policies=self._hidden(policies, name, table),
            )
        return detailed

    def _replicas(self, tables: Mapping[str, TargetFacts]) -> dict[str, Replica]:
        """What those of these tables that are replicated say of it."""
        asked = sorted(n for n, one in tables.items() if one.table_engine.is_replicated)
        if not asked:
            return {}
        found = self._by_table("replicas", _REPLICAS, "system.replicas", asked)
        return {name: Replica(bool(r[0]), r[1], r[2]) for name, r in found.items() if r}

    def _by_table(
        self, what: str, sql: str, source: str, tables: list[str]
    ) -> dict[str, Sequence[Any] | None]:
        """What the server says of each table; None: it did not answer, absent: it says nothing."""
        found: dict[str, Sequence[Any] | None] = {}
        for some in in_urls(tables, len):
            databases = sorted({names.split_table(table)[0] for table in some})
            rows = self._ask(what, sql, source, tables=some, databases=databases)
            found |= dict.fromkeys(some) if rows is None else {row[0]: row[1:] for row in rows}
        return found

    def _policies(self) -> list[RowPolicy]:
        """Row policies for this user."""
        rows = self._ask("row policies of this user", _POLICIES, "system.row_policies") or ()
        return [RowPolicy(*row) for row in rows]

    def _hidden(
        self, policies: Sequence[RowPolicy], name: str, table: TargetFacts
    ) -> tuple[str, ...]:
        """What hides rows of a table from this user."""
        database, own = names.split_table(name)
        on = [p for p in policies if p.database == database and p.table in {own, "", "*"}]
        return hiding(on, self._shown(name, table))

    def _shown(self, name: str, table: TargetFacts) -> str | None:
        """The condition under which this user sees a row; None: the server does not say.

        The plan of a table that only names others is without their filters. A user who may not
        read the table gets no plan, which is a finding of its own.
        """
        if not table.table_engine.is_merge_tree:
            return None
        try:
            return shown_once_there(self._client, quoted_table(name))
        except ClickHouseError as error:
            if getattr(error, "code", None) is None:
                raise translated(error, self._settings.clickhouse, f"read {name}") from error
            return None

    def _window_defaults(self, source: str) -> dict[str, str]:
        what = "default deduplication windows"
        return dict(self._ask(what, _WINDOWS, f"system.{source}", relation=source) or ())

    def _rights(
        self,
        tables: Mapping[str, TargetFacts],
        ledger: TargetFacts | None,
        more: Collection[str],
        *,
        known: bool,
    ) -> dict[str, list[Any]]:
        """Rights that are missing: by target table; else as (right, place) under "" or _EVIDENCE.

        Which rights the ledger needs depends on whether it is there, if that is `known`.
        """
        place = readable(f"{self._settings.loader.database}.ledger")
        whole = f"{readable(self._settings.loader.database)}.*"
        rights = "INSERT", "SELECT", *more
        wanted = [(name, right, readable(name)) for name in tables for right in rights]
        wanted += [("", "SELECT", table) for table in READ_BY_LOADER]
        wanted += [(_EVIDENCE, right.privileges, right.place) for right in EVIDENCE]
        if any(table.table_engine.is_replicated for table in tables.values()):
            wanted += [(_EVIDENCE, "SELECT", "system.replicas")]
        if ledger is not None:
            wanted += [("", right, place) for right in ("INSERT", "SELECT")]
            if _is_older(ledger):
                wanted += [("", "ALTER ADD COLUMN", place)]
        elif known:
            made = "CREATE DATABASE", "CREATE TABLE", "INSERT", "SELECT"
            wanted += [("", right, whole) for right in made]
            wanted += [("", "TABLE ENGINE", "MergeTree")]
        version = parsed(self._client.server_version or "")
        if version is not None and INPUT.before is not None and version < INPUT.before:
            wanted += [("", INPUT.privileges, INPUT.place)]
        missing: dict[str, list[Any]] = {}
        for key, right, where in wanted:
            try:
                granted = int(str(self._client.command(f"CHECK GRANT {right} ON {where}")))
            except (ClickHouseError, ValueError) as error:
                self._cannot(
                    "rights in ClickHouse", error, f"SHOW GRANTS FOR {readable_user(self._user)}"
                )
                return {}
            if not granted:
                missing.setdefault(key, []).append(right if key in tables else (right, where))
        return missing

    def _clock(self) -> ClockOffset | None:
        before = time.time()
        rows = self._ask("ClickHouse's clock", "SELECT toUnixTimestamp64Milli(now64(3))", "")
        after = time.time()
        if not rows:
            return None
        return ClockOffset(rows[0][0] / 1000 - (before + after) / 2, (after - before) / 2)

    def _ask(self, what: str, sql: str, source: str, **parameters: object) -> Sequence[Any] | None:
        """Rows; None where the server said no, which is kept with the reason."""
        try:
            return self._client.query(sql, parameters=parameters).result_rows
        except ClickHouseError as error:
            if getattr(error, "code", None) is None:
                raise translated(error, self._settings.clickhouse, f"read {what}") from error
            grant = f"GRANT SELECT ON {source} TO {readable_user(self._user)}"
            self._cannot(what, error, grant if source else "")
            return None

    def _cannot(self, what: str, error: Exception, mend: str) -> None:
        told = Unasked(what, " ".join(str(error).split())[:300], mend)
        if told not in self._unasked:  # one question may be asked in pieces
            self._unasked.append(told)


def _is_older(ledger: TargetFacts) -> bool:
    """Whether a loader of this version adds columns to it at its start."""
    columns = columns_of(ledger.create)
    return bool(columns) and not columns >= LEDGER_LATER
