"""An INSERT that failed where its rows leave no part in the log of the server that ran it.

On a server whose shards are another one. Nothing here believes what the loader counts: rows are
counted in the tables by the test.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from loader.blocks.worker import Worker
from loader.clickhouse import unconfirmed_parts
from loader.clickhouse.tables_behind import unlogged
from loader.journal.startup import ledger_of
from tests.loader.blocks import Journal, batch, clock_passes
from tests.loader.test_changed_meanwhile import answer_lost
from tests.loader.test_evidence import number
from tests.loader.test_work import before_the_next_insert
from tests.versions.engines import ADMIN, Engine, running
from tests.versions.releases import NOW
from tests.versions.users import User

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from clickhouse_connect.driver.client import Client

PLAIN = User("plain", "w")
_SHARD = (
    "<shard><replica><host>127.0.0.1</host><port>{port}</port><user>{user.name}</user>"
    "<password>{user.password}</password><default_database>{database}</default_database></replica>"
    "</shard>"
)
FULL = "min_free_disk_bytes_to_perform_insert"
"""With less room on the disk than this, the server refuses INSERTs into a MergeTree (code 243)."""
MERGE_TREE = "MergeTree ORDER BY id"
_apps = itertools.count()


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Another server, which is two shards."""
    with running(NOW, tmp_path_factory.mktemp("shards")) as server:
        yield server


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory, shards: Engine) -> Iterator[Engine]:
    clusters = {"two": (shards, ("s1", "s2"))}
    server = Engine(NOW, tmp_path_factory.mktemp("unlogged"), [PLAIN])
    clusters["itself"] = (server, ("shop",))
    listed = "".join(
        f"<{name}>"
        + "".join(_SHARD.format(port=of._tcp, user=ADMIN, database=one) for one in databases)
        + f"</{name}>"
        for name, (of, databases) in clusters.items()
    )
    server._more = f"<remote_servers>{listed}</remote_servers>"
    server.start()
    with contextlib.closing(server.client()) as client:
        clock_passes(client, 2)  # of a claim of the second of its start its logs may lack some
    yield server
    server.kill()


@pytest.fixture
def admin(engine: Engine) -> Iterator[Client]:
    with engine.having("shop") as client:
        yield client


@pytest.fixture
def beyond(shards: Engine) -> Iterator[Client]:
    """Of the shards' server."""
    with shards.having("s1", "s2") as client:
        yield client


@pytest.fixture
def journal(engine: Engine, bootstrap: str, tmp_path: Path) -> Journal:
    return Journal(bootstrap, engine.reached_as(PLAIN), f"unlogged{next(_apps)}", tmp_path)


@pytest.fixture
def worker(journal: Journal) -> Iterator[Worker]:
    ledger_of(journal.settings(), make=True)
    with contextlib.closing(Worker(journal.settings())) as worker:
        yield worker


def sharded(admin: Client, beyond: Client, *, refusing: bool) -> str:
    """A Distributed table; its second shard may take seconds to refuse its rows."""
    late = ", late UInt8 MATERIALIZED sleep(2.9)" * refusing  # ClickHouse allows three
    for shard, columns, more in (("s1", "", ""), ("s2", late, full() * refusing)):
        beyond.command(
            f"CREATE TABLE {shard}.t (id Int64, name String{columns}) ENGINE = MergeTree "
            f"ORDER BY id {more}"
        )
    admin.command(
        "CREATE TABLE shop.d (id Int64, name String) ENGINE = Distributed(two, '', t, rand())"
    )
    return "shop.d"


def full() -> str:
    return f"SETTINGS {FULL} = {1 << 62}"


def test_one_shard_has_its_rows_and_the_other_refused(
    journal: Journal, worker: Worker, admin: Client, beyond: Client
) -> None:
    """The rows of the first shard came again with each attempt."""
    (block,) = journal.seal(sharded(admin, beyond, refusing=True), batch(0, 100))
    (first,) = worker.load([block])
    assert (first.outcome, "243" in first.reason) == ("retry", True), first
    came = number(beyond, "s1.t")
    assert 0 < came < 100
    (second,) = worker.load([block])
    assert number(beyond, "s1.t") == came
    assert second.outcome == "parked"
    assert "shop.d is a Distributed, of whose rows the part log tells nothing" in second.reason


def test_what_failed_before_a_row_was_sent_is_repeated(
    journal: Journal,
    worker: Worker,
    admin: Client,
    beyond: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control: the table was altered between the look at it and the INSERT."""
    blocks = journal.seal(sharded(admin, beyond, refusing=False), batch(0, 100))
    before_the_next_insert(
        monkeypatch, lambda: admin.command("ALTER TABLE shop.d ADD COLUMN more String")
    )
    (first,) = worker.load(blocks)
    assert (first.outcome, first.cause) == ("retry", "table altered")
    admin.command("ALTER TABLE shop.d DROP COLUMN more")
    (second,) = worker.load(blocks)
    assert second.outcome == "loaded", second.reason
    assert number(admin, "shop.d") == 100


def test_the_statement_of_a_shard_is_not_the_tables_own(
    journal: Journal, worker: Worker, admin: Client
) -> None:
    """The server is a shard of its own, and got all rows there for a view; the table got none."""
    for name, more in (("behind", ""), ("a", full())):
        admin.command(
            f"CREATE TABLE shop.{name} (id Int64, name String) ENGINE = {MERGE_TREE} {more}"
        )
    admin.command("CREATE TABLE shop.t (id Int64, name String) ENGINE = Null")
    admin.command("CREATE TABLE shop.d AS shop.t ENGINE = Distributed(itself, '', behind)")
    for into in ("a", "d"):
        select = "SELECT * FROM shop.t"
        admin.command(f"CREATE MATERIALIZED VIEW shop.to_{into} TO shop.{into} AS {select}")
    blocks = journal.seal("shop.t", batch(0, 100))
    (first,) = worker.load(blocks)
    came = [number(admin, f"shop.{one}") for one in ("behind", "a")]
    (second,) = worker.load(blocks)
    assert (first.outcome, second.outcome, came) == ("retry", "parked", [100, 0]), (first, second)
    assert number(admin, "shop.behind") == 100


@pytest.mark.parametrize(
    ("engines", "ends"),
    [
        (["Memory", MERGE_TREE], "parked"),
        (["Log", MERGE_TREE], "parked"),
        (["Null", MERGE_TREE, "Log"], "parked"),
        (["Null", MERGE_TREE], "loaded"),
        ([MERGE_TREE], "loaded"),
    ],
)
def test_where_one_table_is_full(
    journal: Journal, worker: Worker, admin: Client, engines: list[str], ends: str
) -> None:
    """A table and those that views of it fill: what has no parts may have taken the rows before."""
    table, *behind = tables = [f"shop.t{n}" for n in range(len(engines))]
    refusing = tables[engines.index(MERGE_TREE)]
    for name, of in zip(tables, engines, strict=True):
        more = full() * (name == refusing)
        admin.command(f"CREATE TABLE {name} (id Int64, name String) ENGINE = {of} {more}")
    for one in behind:
        admin.command(f"CREATE MATERIALIZED VIEW {one}_mv TO {one} AS SELECT * FROM {table}")
    blocks = journal.seal(table, batch(0, 100))
    (first,) = worker.load(blocks)
    assert (first.outcome, "243" in first.reason) == ("retry", True), first
    came = {one: number(admin, one) for one in tables}
    assert (100 in came.values()) == (ends == "parked"), came
    admin.command(f"ALTER TABLE {refusing} RESET SETTING {FULL}")
    (second,) = worker.load(blocks)
    now = came if ends == "parked" else came | {refusing: 100}
    assert second.outcome == ends, second
    assert {one: number(admin, one) for one in tables} == now
    assert ("of whose rows the part log tells nothing" in second.reason) == (ends == "parked")


@pytest.mark.usefixtures("without_logs")
@pytest.mark.parametrize("viewed", [True, False])
def test_a_count_is_no_proof_where_a_view_is_behind_another_table(
    journal: Journal,
    worker: Worker,
    admin: Client,
    monkeypatch: pytest.MonkeyPatch,
    *,
    viewed: bool,
) -> None:
    """A3: the shard's table has all rows, its view refused them; the block was called loaded."""
    monkeypatch.setattr(unconfirmed_parts, "LOOKED_SECONDS", 0)
    columns = "id Int64, name String, _block String"
    for name, more in (("t", ""), ("sums", full())):
        admin.command(f"CREATE TABLE shop.{name} ({columns}) ENGINE = {MERGE_TREE} {more}")
    admin.command("CREATE TABLE shop.d AS shop.t ENGINE = Distributed(itself, shop, t)")
    if viewed:
        admin.command("CREATE MATERIALIZED VIEW shop.v TO shop.sums AS SELECT * FROM shop.t")
    blocks = journal.seal("shop.d", batch(0, 100))
    if viewed:
        (first,) = worker.load(blocks)
        assert (first.outcome, "243" in first.reason) == ("retry", True), first
    else:
        answer_lost(worker, blocks)
    assert (number(admin, "shop.d"), number(admin, "shop.sums")) == (100, 0)
    (second,) = worker.load(blocks)
    assert second.outcome == ("parked" if viewed else "loaded"), second
    assert ("rows of the views behind it are not counted: shop.v" in second.reason) == viewed
    assert number(admin, "shop.t") == 100


T, V = ("shop", "t"), ("shop", "v")


def row(place: tuple[str, str], engine: str, create: str = "", *views: tuple[str, str]) -> Any:
    return (*place, engine, "00-00", create, list(views), engine, "", 0)


TO = "CREATE MATERIALIZED VIEW shop.v TO b.`u.x` (`id` Int64) AS SELECT id FROM shop.t"
OWN = "CREATE MATERIALIZED VIEW shop.v (`id` Int64) ENGINE = MergeTree ORDER BY id AS SELECT 1"
TABLE = row(T, "MergeTree", "", V)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([row(T, "ReplicatedMergeTree")], ""),
        ([row(T, "Buffer")], "shop.t is a Buffer, of whose rows"),
        ([], "whether shop.t is a MergeTree is not known"),
        ([TABLE], "whether shop.v is a MergeTree is not known"),
        ([TABLE, row(V, "MaterializedView", TO)], "whether b.u.x is"),
        ([TABLE, row(V, "MaterializedView", TO), row(("b", "u.x"), "S3")], "b.u.x is a S3"),
        ([TABLE, row(V, "MaterializedView", TO), row(("b", "u.x"), "MergeTree")], ""),
        ([TABLE, row(V, "MaterializedView", OWN), row(("shop", ".inner.v"), "Log")], "v is a Log"),
        ([TABLE, row(V, "WindowView")], "shop.v is a WindowView"),
        # A view behind another, and a ring of them.
        (
            [
                TABLE,
                row(V, "MaterializedView", TO),
                row(("b", "u.x"), "Null", "", T, ("b", "w")),
                row(("b", "w"), "MaterializedView", TO.replace("u.x", "k")),
                row(("b", "k"), "Kafka"),
            ],
            "b.k is a Kafka",
        ),
    ],
)
def test_which_tables_leave_no_part(rows: Sequence[Any], why: str) -> None:
    def ask(_: str, __: int, *, tables: list[str], databases: list[str]) -> Any:
        asked = (one for one in rows if one[0] in databases)
        return [one for one in asked if f"{one[0]}.{one[1]}" in tables]

    said = unlogged(ask, "shop.t")
    assert why in said
    assert bool(said) == bool(why)


def test_an_insert_that_keeper_did_not_answer_leaves_no_part() -> None:
    """Whatever the engine: its part is there, and has no entry."""
    rows = [row(T, "ReplicatedMergeTree")]
    assert "UNKNOWN_STATUS_OF_INSERT" in unlogged(lambda *_, **__: rows, "shop.t", [243, 319])
    assert not unlogged(lambda *_, **__: rows, "shop.t", [243, 999])


@pytest.mark.parametrize("code", [159, 394, 735])
def test_an_insert_that_was_given_up(code: int) -> None:
    """Keeper may have been asked then; a table of one server needs none."""
    said = unlogged(lambda *_, **__: [row(T, "ReplicatedMergeTree")], "shop.t", [243, code])
    assert f"shop.t is a ReplicatedMergeTree, and one ended (error {code})" in said
    assert not unlogged(lambda *_, **__: [row(T, "MergeTree")], "shop.t", [243, code])


def test_who_may_not_ask_knows_nothing() -> None:
    assert "not known" in unlogged(lambda *_, **__: None, "shop.t")
