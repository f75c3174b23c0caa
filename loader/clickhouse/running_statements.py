"""Does an INSERT of this block, or of an app, still run? Asks every server that could run it.

Receives a block, gives Still; receives an app, gives Runs. An attempt of another loader, or of
this one before its connection was lost, may have gone to any replica, and a statement stands in
`system.processes` of its own server only. So each configured replica is asked directly; one that
does not answer counts as one that runs it, with its name in the reason, because its rows may still
come.

Two things end that wait: the replica answers (a server that was started anew runs nothing of
before), or it is no replica of the table any more (`SYSTEM DROP REPLICA`, as for any that is gone
for good): what still runs on it can't commit then. The coordinator is the witness.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from clickhouse_connect.driver.exceptions import ClickHouseError

from loader.clickhouse.client import ReplicaSilent, failure, one_line
from loader.clickhouse.table_state_sql import ALTERED, STARTED, databases_of
from loader.core.table_rules import DEFAULTS, Window, window
from relay import names
from relay.clickhouse.quoting import literal, table_parameters
from relay.clickhouse.replicas import connected, own_pool
from relay.clickhouse.table_engine import TableEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from clickhouse_connect.driver.client import Client
    from clickhouse_connect.driver.httpclient import HttpClient

    from relay.config.settings import ClickHouse
    from relay.records_pb2 import Block

    About = dict[str, Any]
    Rows = Sequence[Sequence[Any]]

ANSWER_SECONDS = 5
"""That a replica has for its answer."""
SILENT_SECONDS = 5.0
"""That one without an answer is not asked again: blocks of one table ask one after the other."""
TURNS = 4
"""Connections through a balancer, for each replica that is to be met behind it."""
BALANCER_SECONDS = 30.0
"""For all of them together."""
_INSERTS = names.is_of_block("Settings['log_comment']")
_RUNNING = f"SELECT count() FROM system.processes WHERE {_INSERTS}"  # noqa: S608 - constants
_DEFAULTS = (
    "SELECT groupArray((name, toInt64(value))) FROM system.replicated_merge_tree_settings "  # noqa: S608 - constants
    f"WHERE name IN ({', '.join(map(literal, DEFAULTS))})"
)
_DEFINED = (
    f"SELECT any((engine, engine_full, {ALTERED}, version(), ({_DEFAULTS}))) "  # noqa: S608 - constants
    "FROM system.tables WHERE database = {database:String} AND name = {name:String}"
)
_OF_APP = (
    "SELECT groupUniqArrayArray(arrayFilter(b -> startsWith(b, {begin:String}), "
    "splitByChar(',', Settings['log_comment']))) FROM system.processes"
)
"""Blocks of the app, as the comments of what runs name them."""
_OF_TABLE = "FROM system.replicas WHERE database = {database:String} AND table = {name:String}"
_REPLICA = f"SELECT replica_name, mapKeys(replica_is_active) {_OF_TABLE}"
_ALTERED_VIEWS = (
    "SELECT arraySort(groupArray((database || '.' || name, toString(uuid), as_select, "  # noqa: S608 - constants
    f"if({ALTERED} > {STARTED} + 1, '', toString(serverUUID()))))) "
    "FROM system.tables WHERE database IN {databases:Array(String)} "
    f"AND database || '.' || name IN {{views:Array(String)}} AND {ALTERED} >= {STARTED} - 1"
)
"""Since the server was started: a token names these by their UUIDs, and others by their names.
Within a second of the start nobody knows, so that it is a name which no other server has."""


class Definition(NamedTuple):
    """A table as one replica has it.

    ALTER TABLE ... MODIFY SETTING is not replicated, and a server has a version and a configuration
    of its own.
    """

    engine: str
    full: str
    """With the table's settings."""
    altered: int
    """Unix seconds, by that server's clock, of the last change."""
    version: str
    """The server's."""
    defaults: Sequence[tuple[str, int]]
    """The server's, for settings that decide; a table's own override them."""

    @property
    def window(self) -> Window:
        """Return how far back this replica remembers tokens."""
        return window(TableEngine(self.engine, self.full), dict(self.defaults))


@dataclass(frozen=True, slots=True)
class Still:
    """Whether an INSERT of a block still runs.

    Attributes:
        running: it does, or nobody can say that it does not.
        reason: where, for people.
        silent: nobody was found to run it, and not all have answered.
        definitions: of the table on the replicas that answered; none where one server is asked.
    """

    running: bool
    reason: str = ""
    silent: bool = False
    definitions: tuple[Definition, ...] = ()


@dataclass(frozen=True, slots=True)
class Runs:
    """Which INSERTs of an app run.

    Attributes:
        blocks: whose INSERT was seen to run.
        unknown: tables of which a server that may run one gave no answer.
    """

    blocks: frozenset[str]
    unknown: frozenset[str] = frozenset()


class Running:
    """Questions to all servers behind `clickhouse.url`; clients are kept.

    Args:
        client: of the one in use. Where there is no other, it is the only one asked.
        settings: how to reach all; None: there is no other.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        client: HttpClient,
        settings: ClickHouse | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._clock = client, clock
        servers: list[_AskedServer] = []
        if settings is not None and settings.insert_quorum is not None:
            servers = [_AskedServer(settings, url, clock) for url in settings.urls]
        self._alone = not servers
        self._balancer = servers.pop() if len(servers) == 1 else None
        self._replicas = servers

    def close(self) -> None:
        """Close the clients made here."""
        for server in (*self._replicas, *filter(None, [self._balancer])):
            server.close()

    def of(self, block: Block) -> Still:
        """Return whether an INSERT of the block still runs.

        Raises:
            Unavailable, Refused: the only server gave no answer.
        """
        about = {"block": block.id, **table_parameters(block.table)}
        if self._alone:
            return self._on_the_only_one(about)
        if self._balancer is not None:
            return self._behind(self._balancer, about)
        return self._on_any(about)

    def of_app(self, app: str, tables: Collection[str]) -> Runs:
        """Return which INSERTs of an app run.

        A table that is not replicated is on the server in use alone.

        Raises:
            Unavailable, Refused: the only server gave no answer.
        """
        about = {"begin": f"{app}:"}
        if self._balancer is not None:
            return self._of_app_behind(self._balancer, about, tables)
        if self._alone:
            return Runs(frozenset(self._ask_the_only_one(_OF_APP, about)[0][0]))
        rows, silent = self._each(_OF_APP, about)
        blocks = frozenset(block for (some,) in rows.values() for block in some)
        if not silent:
            return Runs(blocks)
        unknown = {t for t in tables if not _only_replicas(rows, table_parameters(t))}
        return Runs(blocks, frozenset(unknown))

    def agree(self, table: str, views: Collection[str]) -> bool:
        """Return whether rows by way of these views have the same token on whichever replica.

        Once a view's query is altered, its rows have another one until that replica is started
        again, and that names the view by its UUID, which is another one where each replica made
        the view by itself. A view that was made since then looks like one that was altered.

        Raises:
            ReplicaSilent: a replica gave no answer.
        """
        if self._alone:
            return True
        about = {
            "databases": databases_of(views),
            "views": sorted(views),
            **table_parameters(table),
        }
        if self._balancer is not None:
            met, missing = self._met(self._balancer, about, _ALTERED_VIEWS)
            altered, silent = [answer for _, answer in met or ()], [missing] if missing else []
        else:
            rows, silent = self._each(f"SELECT ({_ALTERED_VIEWS})", about)
            altered = [answer for (answer,) in rows.values()]
        if silent:
            # Also of one that the coordinator knows no more: the INSERT may have been its own.
            raise ReplicaSilent(
                f"{'; '.join(silent)}: it may give rows by way of a view another token. If it is "
                "gone for good, drop it, and start the loader without its address in clickhouse.url"
            )
        return bool(altered) and all(answer == altered[0] for answer in altered)

    def _of_app_behind(self, balancer: _AskedServer, about: About, tables: Collection[str]) -> Runs:
        blocks, unknown = set[str](), set[str]()
        for table in tables:
            met, missing = self._met(balancer, {**about, **table_parameters(table)}, _OF_APP)
            if met is None:
                blocks |= set(self._ask_the_only_one(_OF_APP, about)[0][0])
                continue
            blocks |= {block for _, some in met for block in some}
            unknown |= {table} if missing else set()
        return Runs(frozenset(blocks), frozenset(unknown))

    def _on_the_only_one(self, about: About) -> Still:
        rows = self._ask_the_only_one(_RUNNING, about)
        return _runs("the server") if rows[0][0] else Still(running=False)

    def _ask_the_only_one(self, sql: str, about: About) -> Rows:
        try:
            return self._client.query(sql, parameters=about).result_rows
        except ClickHouseError as error:
            raise failure(error, "asking which statements run") from error

    def _on_any(self, about: About) -> Still:
        rows, silent = self._each(f"SELECT ({_RUNNING}), ({_DEFINED})", about)
        for server, (running, _) in rows.items():
            if running:
                return _runs(server.url)
        if silent and not _only_replicas(rows, about):
            return _unknown(*silent)
        # All empty where it has no table.
        definitions = tuple(Definition(*defined) for _, defined in rows.values())
        return Still(running=False, definitions=definitions)

    def _each(self, sql: str, about: About) -> tuple[dict[_AskedServer, Any], list[str]]:
        """The row that each server gave, and why others gave none."""
        rows, silent = {}, []
        for server in self._replicas:
            answer = server.ask(sql, about)
            if isinstance(answer, str):
                silent.append(f"replica {server.url} does not answer ({answer})")
            else:
                rows[server] = answer[0]
        return rows, silent

    def _behind(self, balancer: _AskedServer, about: About) -> Still:
        both = f"({_RUNNING}), ({_DEFINED})"
        met, missing = self._met(balancer, about, both, enough=lambda answer: bool(answer[0]))
        if met is None:
            return self._on_the_only_one(about)
        for name, (running, _) in met:
            if running:
                return _runs(f"{name}, behind {balancer.url}")
        if missing:
            return _unknown(missing)
        definitions = tuple(Definition(*defined) for _, (_, defined) in met)
        return Still(running=False, definitions=definitions)

    def _met(
        self,
        balancer: _AskedServer,
        about: About,
        question: str,
        enough: Callable[[Any], bool] = lambda _: False,
    ) -> tuple[list[tuple[str, Any]] | None, str]:
        """Answers over fresh connections, until each replica of the table was met.

        `enough`: whether an answer ends it.

        Returns:
            Names and answers, None where no server that answered has replicas of the table: it is
            on one alone, or refused (loader.clickhouse.tables); and who was not met.
        """
        sql = f"SELECT replica_name, mapKeys(replica_is_active), ({question}) {_OF_TABLE}"
        answers: dict[str, Any] = {}
        known, why = set[str](), ""
        turns, until = TURNS, self._clock() + BALANCER_SECONDS
        while turns and self._clock() < until and not (known and known <= answers.keys()):
            turns -= 1
            rows = balancer.ask(sql, about, afresh=True)
            if isinstance(rows, str):
                why = f" ({rows})"
                continue
            if not rows:  # a server that has not got the table yet says nothing of those that have
                continue
            name, replicas, answer = tuple(rows[0])
            answers[name] = answer
            if enough(answer):
                break
            turns = turns if known else TURNS * len(replicas)
            known |= set(replicas)
        if not answers and not why:
            if not (own := self._ask_the_only_one(_REPLICA, about)):
                return None, ""
            known |= set(own[0][1])
        if known and known <= answers.keys():
            return list(answers.items()), ""
        missing = ", ".join(sorted(known - answers.keys())) or "of the table"
        return list(answers.items()), (
            f"no connection to {balancer.url} reached replica {missing}{why}; if it leads to one "
            "server only, name each replica in clickhouse.url"
        )


class _AskedServer:
    """A server, or a balancer, that is asked directly; its client is made at the first question."""

    def __init__(self, settings: ClickHouse, url: str, clock: Callable[[], float]) -> None:
        self.url = url
        self._settings = settings.model_copy(update={"url": url, "insert_quorum": None})
        self._clock = clock
        self._pool = own_pool(self._settings)
        self._client: Client | None = None
        self._silent: tuple[float, str] | None = None

    def ask(self, sql: str, about: About, *, afresh: bool = False) -> Rows | str:
        """Rows, or why there are none; `afresh`: over a new connection, whatever was before."""
        if not afresh and self._silent and self._clock() - self._silent[0] < SILENT_SECONDS:
            return self._silent[1]
        try:
            if afresh:
                self._pool.clear()
            if self._client is None:
                self._client = self._connected()
            rows: Rows = self._client.query(sql, parameters=about).result_rows
        except (ClickHouseError, OSError) as error:
            self._silent = self._clock(), one_line(error)[:200]
            return self._silent[1]
        self._silent = None
        return rows

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._pool.clear()

    def _connected(self) -> Client:
        client = connected(
            self._settings,
            self._settings.secret(),
            lambda _: True,
            self._pool,
            connect_timeout=ANSWER_SECONDS,
            send_receive_timeout=ANSWER_SECONDS,
            query_retries=0,
            compress=False,
        )
        client.http_retries = 0
        return client


def _only_replicas(answered: Iterable[_AskedServer], about: About) -> bool:
    """Whether the coordinator knows no other replicas of the table than these."""
    met, known = set(), set[str]()
    for server in answered:
        rows = server.ask(_REPLICA, about)
        if isinstance(rows, str) or not rows:
            return False
        met.add(rows[0][0])
        known |= set(rows[0][1])
    return bool(known) and known <= met


def _runs(where: str) -> Still:
    return Still(running=True, reason=f"an INSERT of this block still runs on {where}")


def _unknown(*why: str) -> Still:
    reason = f"{'; '.join(why)}: an INSERT of this block may still run there"
    return Still(running=True, reason=reason, silent=True)
