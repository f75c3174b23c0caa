"""A database of engine MySQL whose server is away: questions about other tables are answered.

ClickHouse asks that server for its tables wherever a question does not exclude the database by its
name alone, and answers nothing while it is away.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from loader.blocks.worker import Worker
from loader.clickhouse import server_records, tables_behind
from loader.clickhouse.client import TableRefused, connect
from loader.clickhouse.ledger import Ledger
from loader.clickhouse.server_records import ServerRecords
from loader.clickhouse.table_cache import TableCache
from loader.clickhouse.tables import Tables
from loader.clickhouse.tables_behind import reached
from loader.core.set_aside_plan import Aside, Asides
from relay.clickhouse.errors import About, is_answer
from relay.clickhouse.quoting import table_parameters
from relay.config.settings import Settings
from relay.errors import ClickHouseAway, Unavailable
from relay.operate.doctor.ask.clickhouse import ClickHouseQuestions
from relay.operate.doctor.judge.clickhouse import judge
from relay.operate.verify.read import server_logs
from relay.operate.view import lost_ledger
from relay.records_pb2 import Block
from relay.schema.catalogue import Catalogue
from tests.verify import realserver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clickhouse_connect.driver.httpclient import HttpClient

HERE, AWAY = "shop.t", "m.t"
SHOP = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.t (a Int32, _block String) ENGINE = MergeTree ORDER BY a",
    "CREATE TABLE shop.u (a Int32, _block String) ENGINE = MergeTree ORDER BY a",
    "CREATE MATERIALIZED VIEW shop.v TO shop.u AS SELECT * FROM shop.t",
    "CREATE MATERIALIZED VIEW shop.w ENGINE = MergeTree ORDER BY a AS SELECT * FROM shop.t",
    "INSERT INTO shop.t SELECT 1, 'b'",
    "SYSTEM FLUSH LOGS",
    "ATTACH DATABASE m ENGINE = MySQL('127.0.0.1:1', 'd', 'u', 'p')",
)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with realserver.running(tmp_path_factory.mktemp("server")) as port:
        yield port


@pytest.fixture(scope="module")
def settings(port: int) -> Settings:
    return Settings.model_validate(
        {
            "app": "shop",
            "kafka": {"bootstrap": "127.0.0.1:1"},
            "source": {"topic": "source"},
            "clickhouse": {"url": f"http://127.0.0.1:{port}"},
            "loader": {"checkpoint": "/nowhere"},
        }
    )


@pytest.fixture(scope="module")
def client(settings: Settings) -> Iterator[HttpClient]:
    with contextlib.closing(connect(settings.clickhouse, 60)) as made:
        for statement in SHOP:
            made.command(statement)
        yield made


@pytest.mark.usefixtures("client")
def test_the_relay_reads_the_columns_of_others(settings: Settings) -> None:
    with contextlib.closing(Catalogue(settings.clickhouse)) as catalogue:
        assert catalogue.read([HERE]).keys() == {HERE}
        assert HERE in catalogue.names()
        with pytest.raises(ClickHouseAway) as failed:
            catalogue.read([HERE, AWAY])
    assert is_answer(failed.value.__cause__), "so it asks database by database"


def test_the_loader_looks_at_others(client: HttpClient) -> None:
    looks = TableCache(Tables(client, "_block"), "_block")
    here, away = Block(id="1", table=HERE), Block(id="2", table=AWAY)
    with pytest.raises(TableRefused):  # which the worker splits by table
        looks.look([here, away], {"1", "2"})
    assert looks.look([here], {"1"}).keys() == {HERE}
    with pytest.raises(Unavailable):
        looks.look([away], {"2"})


@pytest.fixture
def worker(client: HttpClient, settings: Settings) -> Iterator[Worker]:
    Ledger(client, settings.loader.database, settings.app).ensure()
    with contextlib.closing(Worker(settings)) as made:
        yield made


def of_table(table: str, at: int = 0) -> Block:
    return Block(id=f"shop:{table}:0:0:{at}", table=table, rows=1)


@pytest.mark.parametrize("beside", [(), ("shop.typo",)], ids=["alone", "with another's"])
def test_a_table_whose_database_is_away_is_shut(worker: Worker, beside: tuple[str, ...]) -> None:
    """After a few tries its next blocks are not tried. Red before: each micro-batch tried anew."""
    asides, blocks = Asides(), [of_table(table) for table in (AWAY, *beside)]
    found = {one.block: one for one in worker.load(blocks)}
    away = found[blocks[0].id]
    assert (away.outcome, away.about) == ("retry", About.TABLE_NOW)
    assert [found[one.id].about for one in blocks[1:]] == [About.TABLE] * len(beside)
    asides.put(Aside(blocks[0], away.reason, away.about), 0.0)
    assert "m" in asides.shut(AWAY)


def test_a_server_that_can_look_at_nothing_is_waited_for(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is no table's trouble: none of them is shut."""

    def fails(*_: object) -> None:
        cause = DatabaseError("Code: 241. DB::Exception: (total) memory limit exceeded")
        raise Unavailable("asking about the tables: Code: 241") from cause

    monkeypatch.setattr(Tables, "look", fails)
    blocks = [of_table(table) for table in (HERE, AWAY)]
    assert [(one.outcome, one.about) for one in worker.load(blocks)] == [("retry", "")] * 2


def test_the_loader_has_its_evidence_of_others(client: HttpClient) -> None:
    evidence = ServerRecords(client, several=False)
    places = [one.place for one in reached(evidence.ask, HERE) if one.engine == "MergeTree"]
    assert [place[:13] for place in sorted(places)] == ["shop..inner_i", HERE, "shop.u"]
    assert not evidence.elsewhere(places)
    views = evidence.ask(tables_behind._VIEWS, 0)
    assert sorted(row[:2] for row in views or ()) == [("shop", "v"), ("shop", "w")]
    made = client.query("SELECT query_id FROM system.part_log WHERE table = 't'").result_rows
    asked = {"queries": [row[0] for row in made], "ended": 1 << 62, **table_parameters(HERE)}
    stays = evidence.ask(server_records.STAYS, 0, **asked)
    assert [tuple(row) for row in stays or ()] == [(3, 1, 0, 0)]


def test_the_doctor_judges_others_and_does_not_call_its_tables_missing(
    client: HttpClient, settings: Settings
) -> None:
    """Red before: "there is no table shop.t", of all of them, and of the ledger."""
    assert client.server_version
    with contextlib.closing(ClickHouseQuestions(settings)) as doctor:
        facts = doctor.look([HERE, AWAY, "shop.typo"])
    assert facts.tables.keys() == {HERE, "shop.typo"}
    of_here = facts.tables[HERE]
    assert of_here is not None
    assert of_here.columns.keys() == {"a", "_block"}
    assert sorted(view.name for view in of_here.views) == ["shop.v", "shop.w"]
    assert facts.unread == (AWAY,)
    assert [one.what for one in facts.unasked] == ["the tables of database m"]
    found = [one.what for one in judge(settings, facts, 60.0) if one.code == "table-missing"]
    assert [what.partition(",")[0] for what in found] == ["there is no table shop.typo"]


def test_others_of_its_kind_are_answered(client: HttpClient) -> None:
    views = client.query(server_logs._VIEWS_NOW, parameters={"views": ["shop.v", "shop.gone"]})
    assert [row[0] for row in views.result_rows] == ["shop.v"]
    asked = lost_ledger.elsewhere(lambda sql, of: client.query(sql, parameters=of).result_rows, "a")
    assert asked == ()
