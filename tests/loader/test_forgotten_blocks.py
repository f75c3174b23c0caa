"""Which blocks are asked about though the ledger has no entry of them."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError, DatabaseError

from loader.clickhouse.client import TableRefused
from loader.clickhouse.forgotten_blocks import Forgotten
from loader.clickhouse.ledger import Ledger
from loader.clickhouse.running_statements import Running, Runs
from loader.clickhouse.tables import Target
from loader.core.plan import PREPARED, Entry, doubt
from loader.core.positions import Unsure
from loader.core.table_rules import Nature, Window
from relay.config.server_settings import ClickHouse
from relay.errors import Unavailable
from relay.records_pb2 import Block
from tests.broker.pipeline import wait_until
from tests.loader.test_work import make
from tests.versions.engines import Engine, running
from tests.versions.releases import RELEASES
from tests.versions.users import User


def block(app: str, table: str, first: int) -> Block:
    return Block(id=f"{app}:{table}:0:0:{first}", table=table)


@pytest.fixture
def asked(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The questions of Forgotten."""
    seen: list[str] = []
    query = ledger.client.query

    def listening(sql: str, **options: object) -> object:
        seen.append(sql)
        return query(sql, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(ledger.client, "query", listening)
    return seen


def test_rows_that_are_there_are_asked_about(
    ledger: Ledger, client: Client, database: str, asked: list[str]
) -> None:
    """Where a count of 0 proves nothing, also what an INSERT is recorded of; none of later ones."""
    app = ledger.app
    merge, empty = (make(client, f"{database}.{name}", stamped=True) for name in ("m", "e"))
    bare = make(client, f"{database}.bare", stamped=False)
    log = f"{database}.log"
    client.command(f"CREATE TABLE {log} (id Int64, _block String) ENGINE = Log")
    for table in (merge, log):
        client.command(
            f"INSERT INTO {table} (id, _block) VALUES (1, '{app}:{table}:0:0:1'), (2, 'x')"
        )
    forgotten = Forgotten(ledger, "_block", {0: Unsure(10)})
    tables = (merge, log, empty, bare, f"{database}.nowhere")
    new = [(0, at, block(app, table, at)) for table in tables for at in (0, 1, 9, 10)]
    recorded = f"{app}:{log}:0:0:9"
    client.command(f"INSERT INTO {bare} (id) VALUES (1)", settings={"log_comment": "other"})
    client.command(f"INSERT INTO {log} (id) VALUES (9)", settings={"log_comment": recorded})
    # A server answers a moment before its list of what runs lacks the statement.
    wait_until(lambda: not forgotten._running.of_app(app, {log}).blocks, "the end of the INSERT")
    asking = [one for one in new if forgotten.asks(one, ())]
    assert forgotten.among(asking) == {f"{app}:{merge}:0:0:1", f"{app}:{log}:0:0:1", recorded}
    asked.clear()
    assert forgotten.among([(0, 9, block(app, empty, 9))]) == set()
    assert not forgotten.asks((1, 0, block(app, merge, 1)), ())
    assert asked == []


def test_a_person_says_that_it_was_lost(ledger: Ledger, client: Client, database: str) -> None:
    """Then an empty table says something only where its rows stay and are seen."""
    plain = make(client, f"{database}.plain", stamped=False)
    client.command(f"CREATE TABLE {database}.gone (id Int64) ENGINE = Null")
    full = make(client, f"{database}.full", stamped=False)
    client.command(f"INSERT INTO {full} VALUES (1, 'x')")
    forgotten = Forgotten(ledger, "_block", {0: Unsure(10, lost=10)})
    tables = (plain, f"{database}.gone", full)
    new = [(0, at, block(ledger.app, table, at)) for table in tables for at in (9, 10)]
    expected = {f"{ledger.app}:{table}:0:0:9" for table in (f"{database}.gone", full)}
    assert forgotten.among([one for one in new if forgotten.asks(one, ())]) == expected
    assert (forgotten.lost(0, 9), forgotten.lost(0, 10)) == (True, False)


def test_what_a_restored_ledger_has_may_be_older_than_the_rows(ledger: Ledger) -> None:
    """A claim of before the backup: its INSERT may have ended since; one doubt is enough."""
    forgotten = Forgotten(ledger, "_block", {0: Unsure(20, back=10)})
    at_9, at_10 = ((0, at, block(ledger.app, "d.t", at)) for at in (9, 10))
    claimed, doubted = [Entry(PREPARED, 1, "c")], [Entry(PREPARED, 1, "c"), doubt(1, lost=False)]
    assert [forgotten.asks(at_9, some) for some in ((), claimed, doubted)] == [True, True, False]
    assert [forgotten.asks(at_10, some) for some in ((), claimed)] == [True, False]


def test_an_insert_that_still_runs_is_asked_about(
    ledger: Ledger, client: Client, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are not there yet; and the table is not taken for an empty one."""
    table = make(client, f"{database}.t", stamped=True)
    late = block(ledger.app, table, 1)
    forgotten = Forgotten(ledger, "_block", {0: Unsure(10)})
    with monkeypatch.context() as patched:
        runs = Runs(frozenset({late.id}))
        patched.setattr(forgotten._running, "of_app", lambda *_: runs)
        assert forgotten.among([(0, 1, late), (0, 2, block(ledger.app, table, 2))]) == {late.id}
    client.command(f"INSERT INTO {table} (id, _block) VALUES (1, '{late.id}')")
    assert forgotten.among([(0, 1, late)]) == {late.id}


def test_what_runs_is_found_by_its_comment(ledger: Ledger) -> None:
    """The question itself, under the comment of two blocks."""
    ids = [f"{ledger.app}:d.t:0:0:{n}" for n in (1, 2)]
    forgotten = Forgotten(ledger, "_block", {})
    ledger.client.set_client_setting("log_comment", ",".join([*ids, f"x{uuid.uuid4()}:d.t:0:0:1"]))
    assert forgotten._running.of_app(ledger.app, {"d.t"}) == Runs(frozenset(ids))


@pytest.fixture
def elsewhere(clickhouse: ClickHouse, tmp_path: Path) -> Iterator[Engine]:
    """Another server, that knows the same user."""
    (now,) = (release for release in RELEASES if release.installed)
    user = User(clickhouse.user, clickhouse.secret())
    with running(now, tmp_path / "elsewhere", (user,)) as engine:
        yield engine


@contextlib.contextmanager
def under_way(engine: Engine, comment: str) -> Iterator[None]:
    """A statement with this comment, until left."""
    sleeping = "SELECT sum(sleepEachRow(1)) FROM numbers(60) SETTINGS max_block_size = 1"
    with contextlib.closing(engine.client()) as slow, contextlib.closing(engine.client()) as admin:

        def sleep() -> None:
            with contextlib.suppress(ClickHouseError):
                slow.command(sleeping, settings={"log_comment": comment})

        thread = threading.Thread(target=sleep)
        thread.start()
        count = f"SELECT count() FROM system.processes WHERE Settings['log_comment'] = '{comment}'"
        wait_until(lambda: admin.query(count).result_rows == [(1,)], "the statement runs")
        try:
            yield
        finally:
            admin.command(f"KILL QUERY WHERE Settings['log_comment'] = '{comment}' SYNC")
            thread.join()


def test_what_runs_on_another_replica_is_asked_about(
    ledger: Ledger, client: Client, database: str, clickhouse: ClickHouse, elsewhere: Engine
) -> None:
    """The ledger's server runs nothing; and of one that is away it is not known."""
    table = make(client, f"{database}.t", stamped=True)
    late, other = (block(ledger.app, table, at) for at in (1, 2))
    places = [(0, 1, late), (0, 2, other)]
    both = clickhouse.model_copy(
        update={"url": f"{clickhouse.url},{elsewhere.url}", "insert_quorum": "auto"}
    )
    every = Running(ledger.client, both)
    with under_way(elsewhere, f"{late.id},claim=x"):
        # Negative control: asked of one server, as before, it is taken for one that nobody knows.
        assert Forgotten(ledger, "_block", {0: Unsure(10)}).among(places) == set()
        asked = Forgotten(ledger, "_block", {0: Unsure(10)}, every)
        assert asked.among(places) == {late.id}
        client.command(f"INSERT INTO {table} (id, _block) VALUES (1, '{late.id}')")
        assert asked.among(places) == {late.id}, "the table was not taken for an empty one"
    elsewhere.kill()
    every.close()
    silent = Running(ledger.client, both)
    asked = Forgotten(ledger, "_block", {0: Unsure(10)}, silent)
    assert asked.among(places) == {late.id, other.id}
    silent.close()


def test_behind_a_balancer_each_table_is_asked_of_its_server(
    ledger: Ledger, clickhouse: ClickHouse, database: str, client: Client
) -> None:
    """One that is not replicated: as of a server alone."""
    table = make(client, f"{database}.t", stamped=True)
    balanced = Running(ledger.client, clickhouse.model_copy(update={"insert_quorum": "auto"}))
    own = f"{ledger.app}:{table}:0:0:1"
    ledger.client.set_client_setting("log_comment", f"{own},claim=x")
    assert balanced.of_app(ledger.app, {table}) == Runs(frozenset({own}))
    balanced.close()


class TroubledTables:
    """In the place of Tables: none has a row of any block, and of d.bad a question fails."""

    def __init__(self, question: str, nature: Nature) -> None:
        self._question, self._nature = question, nature
        self.evidence = self

    def _ask(self, question: str, *, bad: bool) -> None:
        if bad and question == self._question:
            raise Unavailable("asking about the tables: Code: 158. Limit for rows exceeded")

    def look(self, tables: Collection[str]) -> dict[str, Target]:
        self._ask("look", bad="d.bad" in tables)
        stamped = {"id": "Int64", "_block": "String"}
        return {table: Target(stamped, 1, self._nature, 0) for table in tables}

    def shown_only(self, _: str) -> str:
        return ""

    def counted(self, table: str, _: Collection[str]) -> dict[str, int]:
        self._ask("counted", bad=table == "d.bad")
        return {}

    def counted_whole(self, blocks: Sequence[Block], _: Nature) -> tuple[dict[str, int], str]:
        return self.counted(blocks[0].table, [block.id for block in blocks]), ""

    def recorded(self, blocks: Collection[str], _: int) -> set[str]:
        self._ask("recorded", bad="app:d.bad:0:0:1" in blocks)
        return set()


class UnlistedTables:
    """In the place of Tables: none is listed, and this user may not know whether d.bad is there."""

    def look(self, _: Collection[str]) -> dict[str, Target]:
        return {}

    def check_gone(self, table: str) -> None:
        if table == "d.bad":
            raise TableRefused("Code: 497. Not enough privileges")


COUNTABLE, PASSING = Nature(Window(0, None, "parts")), Nature(Window(0, None, "none"))


def in_trouble(
    monkeypatch: pytest.MonkeyPatch, question: str, nature: Nature, *, away: bool, lost: bool
) -> Forgotten:
    """What looks at tables of which one has trouble, or whose server is away by then."""

    def query(sql: str, **_: object) -> SimpleNamespace:
        if away and sql == "SELECT 1":
            raise DatabaseError("Code: 202. DB::Exception: Too many simultaneous queries")
        return SimpleNamespace(result_rows=[[[]]])

    ledger = cast("Ledger", SimpleNamespace(app="app", client=SimpleNamespace(query=query)))
    forgotten = Forgotten(ledger, "_block", {0: Unsure(10, lost=10 if lost else 0)})
    monkeypatch.setattr(forgotten, "_tables", TroubledTables(question, nature))
    return forgotten


IN_TROUBLE = [(0, at, block("app", f"d.{name}", 1)) for at, name in enumerate(("bad", "well"))]


def test_a_table_that_this_user_does_not_see_may_have_the_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its blocks wait for the right; taken for new then, they were inserted a second time."""
    forgotten = in_trouble(monkeypatch, "", COUNTABLE, away=False, lost=False)
    monkeypatch.setattr(forgotten, "_tables", UnlistedTables())
    assert forgotten.among(IN_TROUBLE) == {"app:d.bad:0:0:1"}


@pytest.mark.parametrize(
    ("question", "nature", "lost"),
    [
        ("look", COUNTABLE, False),
        ("counted", COUNTABLE, False),
        ("counted", PASSING, False),
        ("counted", COUNTABLE, True),
    ],
)
def test_one_tables_trouble_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, question: str, nature: Nature, *, lost: bool
) -> None:
    """The attempt at its own blocks meets it again. Red before: every other's waited."""
    forgotten = in_trouble(monkeypatch, question, nature, away=False, lost=lost)
    assert forgotten.among(IN_TROUBLE) == {"app:d.bad:0:0:1"}


def test_a_question_about_the_query_log_that_fails_leaves_its_blocks_in_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is asked once for all of those tables, and for no other."""
    forgotten = in_trouble(monkeypatch, "recorded", PASSING, away=False, lost=False)
    assert forgotten.among(IN_TROUBLE) == {one.id for *_, one in IN_TROUBLE}


@pytest.mark.parametrize("question", ["look", "counted"])
@pytest.mark.parametrize("lost", [False, True])
def test_a_server_that_answers_nothing_puts_no_block_in_doubt(
    monkeypatch: pytest.MonkeyPatch, question: str, *, lost: bool
) -> None:
    """Else all blocks of a micro-batch would be asked about one by one."""
    forgotten = in_trouble(monkeypatch, question, COUNTABLE, away=True, lost=lost)
    with pytest.raises(Unavailable):
        forgotten.among(IN_TROUBLE)


def test_a_passing_trouble_parks_nothing_of_a_lost_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table may be empty: that it is not known yet must not leave its blocks to a person."""
    forgotten = in_trouble(monkeypatch, "look", COUNTABLE, away=False, lost=True)
    with pytest.raises(Unavailable, match="Limit for rows"):
        forgotten.among(IN_TROUBLE)
