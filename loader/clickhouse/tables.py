"""What the target tables say: columns, insert counters, rows of a block, running INSERTs.

Receives table names and blocks, gives plain values for loader.core.plan. Never writes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from clickhouse_connect.driver.exceptions import ClickHouseError

from loader.clickhouse.client import TableRefused, failure, is_permanent, table_failure
from loader.clickhouse.running_statements import Running
from loader.clickhouse.server_records import ServerRecords, inserted_since, why_fewer, why_removed
from loader.clickhouse.table_state_sql import (
    ALL_COUNTERS,
    ALTERED,
    INSERTABLE,
    SHAPE,
    STARTED,
    rows_of_blocks,
    tables_parameters,
)
from loader.clickhouse.tables_behind import Repeat, room_behind, views_of_takers, with_unseen
from loader.clickhouse.unconfirmed_parts import (
    ReplicaState,
    compare_counts,
    count_fetched,
    replica_state,
    why_unconfirmed,
    why_unlooked,
)
from loader.core.plan import InsertFacts
from loader.core.table_rules import DEFAULTS, Nature, emptied, nature, window
from loader.core.token_hashes import knows_tokens, surely_remembered
from relay.clickhouse.http_pool import in_urls
from relay.clickhouse.quoting import quoted_table, table_parameters
from relay.clickhouse.replicas import is_shared
from relay.clickhouse.statement_settings import FEW_ROWS, free_of
from relay.clickhouse.table_engine import TableEngine, columns_of
from relay.clickhouse.table_keys import TableKeys
from relay.config.allowed_tables import is_ledger

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from clickhouse_connect.driver.httpclient import HttpClient

    from loader.clickhouse.ledger import Claimed
    from loader.clickhouse.running_statements import Definition
    from loader.core.plan import Human, Run
    from relay.records_pb2 import Block

_CLOCK_SECONDS = 1
"""That the second of a server's start, as it is computed, may differ from one time to another."""


_NO_COLUMNS: tuple[Any, ...] = ((), 0, (), ())
"""What `Tables._columns` has of a table that shows this user none."""


@dataclass(frozen=True, slots=True)
class Target:
    """The present state of a table."""

    columns: Mapping[str, str]
    """Name to type, of the columns that an INSERT may name."""
    shape: int
    """A hash of all columns; it differs after the table was altered or recreated."""
    nature: Nature
    counter: int
    """Of inserts; -1 where there is none, or where it may not be read."""
    altered: int = 0
    """Unix seconds, by the server's clock, when its definition was last changed."""
    version: str = ""
    """Of the server that was asked."""
    unseen: frozenset[str] | None = frozenset()
    """Columns on which this user has no right; None: its definition is not shown."""

    def stamped(self, block_column: str) -> bool:
        """Return whether rows carry the id of their block."""
        return block_column in self.columns

    def counts(self, block_column: str) -> bool:
        """Return whether a count of rows alone decides about a block of the table.

        Then blocks may go together, under a token that no other attempt repeats.
        """
        return self.nature.is_countable and self.stamped(block_column)


class Tables:
    """Questions about tables, through one client.

    Attributes:
        ledgers: tables that were examined and may receive no rows, because they are ledgers.

    Args:
        client: of the server, or of the replicas.
        block_column: that holds block ids, in tables that have it.
        several: replicas stand behind the client. A table that is not replicated is refused
            then: what an INSERT left on one would be looked for on another.
        running: asks all of them what runs; else the client's server is the only one.

    Raises (every method): Unavailable, Refused; TableRefused where it is about one table.
    """

    def __init__(
        self,
        client: HttpClient,
        block_column: str,
        *,
        several: bool = False,
        running: Running | None = None,
    ) -> None:
        self._client, self._several = client, several
        self._running = running or Running(client)
        self._block_column = block_column
        self._defaults: dict[str, dict[str, int]] = {}
        self._started = 0
        self.evidence = ServerRecords(client, several=several)
        self.ledgers: set[str] = set()

    def look(self, tables: Collection[str]) -> dict[str, Target]:
        """Return the tables that exist, by name."""
        targets: dict[str, Target] = {}
        for some in in_urls(sorted(tables), len):
            targets |= self._look(frozenset(some))
        return targets

    def check_gone(self, table: str) -> None:
        """Check that a table which `look` does not give is gone, and not hidden from this user."""
        exists = f"EXISTS TABLE {quoted_table(table)}"  # refused where this user may not know
        if table not in self.ledgers and self._ask(exists)[0][0]:
            raise TableRefused(f"{table} came back meanwhile", "Run it again.")

    def _look(self, tables: Collection[str]) -> dict[str, Target]:
        """Look at as many as one question takes."""
        listed = tables_parameters(tables)
        rows = self._ask(
            "SELECT database || '.' || name, engine, engine_full, sorting_key, partition_key, "  # noqa: S608 - a constant
            "arrayMap((d, t) -> d || '.' || t, dependencies_database, dependencies_table), "
            f"{STARTED}, create_table_query, {ALTERED}, version() FROM system.tables "
            "WHERE database IN {databases:Array(String)} AND name IN {names:Array(String)}",
            **listed,
        )
        columns = self._columns(listed)
        targets: dict[str, Target] = {}
        for table, engine, full, sorting, partition, views, started, create, *now in rows:
            self._forget_defaults(int(started))
            if table not in tables:
                continue
            insertable, shape, made, seen = columns.get(table, _NO_COLUMNS)
            types = dict(insertable)
            if is_ledger(types):
                self.ledgers.add(table)
                continue
            if self._several and not is_shared(engine):
                raise TableRefused(
                    f"clickhouse.url names several replicas, but {table} is not replicated: "
                    f"it is a {engine}",
                    "Make the table a ReplicatedMergeTree, or name one replica in clickhouse.url.",
                )
            defaults, lost = self._window_defaults(engine), emptied(create, self._block_column)
            keys = TableKeys(sorting, partition, dict.fromkeys(types, "") | dict(made))
            rules = nature(engine, full, defaults, keys, tuple(views), lost)
            defined, (altered, version) = columns_of(create), now
            unseen = defined.difference(seen) if defined else None
            targets[table] = Target(types, shape, rules, -1, int(altered), version, unseen)
        counters = self._counters({table: target.nature for table, target in targets.items()})
        return {
            table: replace(target, counter=counters[table]) for table, target in targets.items()
        }

    def _columns(self, listed: Mapping[str, list[str]]) -> dict[str, Sequence[Any]]:
        """What system.columns has, by table.

        Name and type of columns that an INSERT may name, the hash of all columns, name and
        expression of those that have one, and all names that this user sees.
        """
        rows = self._ask(
            "SELECT database || '.' || table, "  # noqa: S608 - two constants
            f"groupArrayIf((name, type), {INSERTABLE}), {SHAPE}, "
            "groupArrayIf((name, default_expression), default_expression != ''), "
            "groupArray(name) FROM system.columns "
            "WHERE database IN {databases:Array(String)} AND table IN {names:Array(String)} "
            "GROUP BY database, table",
            stamp=self._block_column,
            **listed,
        )
        return {table: columns for table, *columns in rows}

    def facts(self, block: Block, run: Run, target: Target, claimed: Claimed) -> InsertFacts:
        """Return what loader.core.plan asks about a block that an earlier claim may have inserted.

        `run`: its attempt, which says whether rows of earlier claims carry the block's id.
        """
        if (still := self._running.of(block)).running:
            return InsertFacts(running=still.reason)
        rules = target.nature
        place = table_parameters(block.table)
        parts = self.evidence.parts(place, claimed.at_ms)
        since = rules.window.counter_before(run.since, (claim.sent for claim in run.earlier))
        replica = self._replica(block.table, rules, since)
        newest = replica.newest
        mine = block.table, [block.id]
        counted = self.counted(*mine).get(block.id, 0) if run.all_stamped else None
        unconfirmed = self._doubt(block, rules, replica, claimed) if counted else ""
        # A transform may make more rows than the block has, each version its own number.
        rows = max([run.rows, *(claim.rows for claim in run.earlier)])
        is_fewer = counted is not None and counted < rows
        inserted = inserted_since(rules, since, newest, parts)
        forgotten = inserted != 0 and rules.forgets(None if parts is None else parts.emptied)
        margin = -1 if forgotten else self._margin(target, still.definitions, claimed)
        may_repeat = inserted is not None and inserted <= margin
        told_absent = run.human == "absent"
        deletes, removed, fewer = None, "", ""
        if is_fewer or rules.repeatable or may_repeat or told_absent or inserted == 0:
            deletes = self.evidence.deletes(place, claimed.at_ms, self._block_column)
        if is_fewer or rules.repeatable or told_absent:
            removed = why_removed(rules, parts, deletes, self._block_column)
        if is_fewer:
            shrank = "its newest parts disappeared" if 0 <= newest < since else ""
            fewer = why_fewer(block.table, [rules.vanish, removed, shrank], self.evidence)
            if not fewer:
                whole = self.counted_whole([block], rules, self.evidence.unmasked, run.human)
                again = partial(self.counted, *mine)
                fewer, others = compare_counts(block.id, counted or 0, whole, again)
                unconfirmed = unconfirmed or others
        room, untouched = 0, inserted == 0 and not rules.loses_parts(logged=parts is not None)
        if deletes:
            # A part that a mutation empties goes with its token; the newest's counter, too.
            margin, inserted = -1, None
        elif inserted is not None and (may_repeat or untouched) and rules.views:
            repeat = Repeat(block.table, self._block_column, claimed, inserted, untouched)
            room = self._room_behind(target, repeat)
            margin = min(margin, inserted + room)
        if inserted == 0 and (room < 0 or rules.hides_an_insert(margin, logged=parts is not None)):
            inserted = None
        ask = self.evidence.ask
        views = with_unseen(ask, block.table, rules.views) if room < 0 else rules.views
        takers = views_of_takers(ask, block.table) if rules.forwards and counted else ()
        return InsertFacts(
            inserted=inserted,
            margin=margin,
            newest=newest,
            counted=counted,
            fewer=fewer,
            views=(*views, *takers),
            repeatable=rules.repeatable and not removed,
            one_step=rules.one_step,
            unconfirmed=unconfirmed,
            passing=replica.passing,
            logs_tokens=rules.window.counter == "parts" and rules.window.parts > 0,
            restarted=claimed.may_precede(claimed.started),
            removed=removed,
        )

    def _replica(self, table: str, rules: Nature, since: int) -> ReplicaState:
        """Return the insert counter, and what a replica says beside it."""
        if rules.window.counter == "log":
            return replica_state(self._allowed, table, since)
        return ReplicaState(self._counters({table: rules})[table])

    def _doubt(self, block: Block, rules: Nature, replica: ReplicaState, claimed: Claimed) -> str:
        """Return why rows of the block that were counted may yet be dropped; "": they stay."""
        if rules.forwards:
            return why_unlooked(self.evidence.ask, block.id, claimed)
        about = block.table, block.id, self._block_column, claimed.at_ms
        return why_unconfirmed(self._allowed, replica, *about)

    def _margin(self, target: Target, elsewhere: Collection[Definition], claimed: Claimed) -> int:
        """Return how many parts may follow the oldest INSERT with its token surely remembered.

        Each replica forgets tokens for all, by the window that it has itself, and gives each part
        of its INSERTs as many entries as its version does.
        """
        altered = max([target.altered, *(replica.altered for replica in elsewhere)])
        # A window may have been another one meanwhile, which forgot tokens.
        if not knows_tokens(target.version, claimed.versions) or claimed.may_precede(altered):
            return -1
        others = ((replica.window, replica.version) for replica in elsewhere if replica.engine)
        servers = [(target.nature.window, target.version), *others]
        versions = {*claimed.versions, *(version for _, version in servers)}
        seconds = claimed.seconds
        return min(surely_remembered(tokens, seconds, now, versions) for tokens, now in servers)

    def _room_behind(self, target: Target, repeat: Repeat) -> int:
        """Return how many parts may yet come while the tables behind remember what they have."""
        margin = partial(self._margin_of, target, repeat.claimed)
        return room_behind(
            self.evidence, repeat, margin, partial(self._running.agree, repeat.table)
        )

    def _margin_of(self, target: Target, claimed: Claimed, engine: str, full: str) -> int:
        """Return the same by the window of a table that takes rows of the same INSERT."""
        tokens = window(TableEngine(engine, full), self._window_defaults(engine))
        now, before = target.version, claimed.versions
        if not knows_tokens(now, before):
            return -1
        return surely_remembered(tokens, claimed.seconds, now, before)

    def counted(self, table: str, blocks: Collection[str], more: str = "") -> dict[str, int]:
        """Return rows by block id, where the table has its column; `more`: SETTINGS."""
        sql = rows_of_blocks(table, self._block_column, more)
        answers = (self._ask(sql, blocks=ids, few=False) for ids in in_urls(blocks, len))
        return dict(row[0] for rows in answers for row in rows)

    def counted_whole(
        self, blocks: Sequence[Block], rules: Nature, more: str = "", human: Human = "nothing"
    ) -> tuple[dict[str, int], str]:
        """Return the same of a table's blocks, and why others may be still to come; "": none."""
        table, ask = blocks[0].table, partial(self._allowed, few=False)
        if rules.window.counter != "log":
            return self.counted(table, [block.id for block in blocks], more), ""
        return count_fetched(ask, rows_of_blocks(table, self._block_column, more), blocks, human)

    def _counters(self, natures: Mapping[str, Nature]) -> dict[str, int]:
        """Return the insert counter of each table."""
        counters = dict.fromkeys(natures, -1)
        for kind, sql in ALL_COUNTERS.items():
            of_kind = {t for t, rules in natures.items() if rules.window.counter == kind}
            if not of_kind:
                continue
            rows = self._allowed(sql, **tables_parameters(of_kind))
            if rows is not None and kind == "parts":
                counters |= dict.fromkeys(of_kind, 0)  # a table without parts is not in the answer
            counters |= {t: int(n) for t, n in rows or () if t in of_kind}
        return counters

    def _forget_defaults(self, started: int) -> None:
        """Forget the defaults: a restarted server may have another version or configuration."""
        if abs(started - self._started) > _CLOCK_SECONDS:
            self._defaults.clear()
        self._started = started

    def _window_defaults(self, engine: str) -> dict[str, int]:
        """Return the server's defaults for tables of this engine."""
        source = "replicated_merge_tree_settings" if is_shared(engine) else "merge_tree_settings"
        if source not in self._defaults:
            rows = self._ask(
                f"SELECT name, toInt64(value) FROM system.{source} "  # noqa: S608 - one of two constants
                "WHERE name IN {deciding:Array(String)}",
                deciding=list(DEFAULTS),
            )
            self._defaults[source] = {name: int(value) for name, value in rows}
        return self._defaults[source]

    def _allowed(self, sql: str, **parameters: Any) -> list[Sequence[Any]] | None:
        """Ask; return None if this user has no right to read it."""
        try:
            return self._query(sql, **parameters)
        except ClickHouseError as error:
            if is_permanent(error):
                return None
            raise failure(error, "asking about the tables") from error

    @cached_property
    def _few_rows(self) -> Mapping[str, object]:
        """Settings of a question about few rows, as those of system tables are."""
        return free_of(self._client, FEW_ROWS)

    def _ask(self, sql: str, **parameters: Any) -> list[Sequence[Any]]:
        try:
            return self._query(sql, **parameters)
        except ClickHouseError as error:
            raise table_failure(error, "asking about the tables") from error

    def _query(self, sql: str, *, few: bool = True, **parameters: object) -> list[Sequence[Any]]:
        """Ask; `few`: for few rows, as those of system tables are."""
        settings = dict(self._few_rows) if few else {}
        answer = self._client.query(sql, parameters=parameters, settings=settings)
        return list(answer.result_rows)
