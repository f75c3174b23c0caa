"""The worker with a network between it and ClickHouse that loses answers, cuts and stalls."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
from clickhouse_connect.driver.client import Client

from loader.blocks.worker import Worker
from loader.clickhouse.ledger import Ledger
from relay.config.server_settings import ClickHouse
from relay.records_pb2 import Block
from tests.chaos.proxy import Proxy
from tests.chaos.proxy_wire import HTTP
from tests.loader.blocks import Journal, batch
from tests.loader.test_work import copies, make, others_insert, outcomes

CLAIM, INSERT, MARK = "FORMAT JSONEachRow", "FORMAT Arrow", "'loaded', "
"""What only this statement of the worker holds."""
MORE_THAN_ONE = 10
WITHIN_HEAD = 60
"""Bytes: the status and a line more."""
SECONDS = 30.0
ONE_COPY, NONE, TWO_COPIES = (1000, 1000), (0, 0), (2000, 1000)


@pytest.fixture
def proxy(clickhouse: ClickHouse) -> Iterator[Proxy]:
    url = urlsplit(clickhouse.url)
    made = Proxy.start((url.hostname or "", url.port or 0), wire=HTTP)
    yield made
    made.stop()


@pytest.fixture
def remote(journal: Journal, ledger: Ledger, proxy: Proxy) -> Iterator[Callable[..., Worker]]:
    """Makes workers that reach ClickHouse through the proxy alone."""
    made: list[Worker] = []

    def make_one(**settings: float) -> Worker:
        direct = journal.settings(**settings)
        clickhouse = direct.clickhouse.model_copy(update={"url": f"http://{proxy.address}"})
        made.append(Worker(direct.model_copy(update={"clickhouse": clickhouse})))
        assert made[-1]._ledger.name == ledger.name
        return made[-1]

    yield make_one
    for one in made:
        one.close()


def attempted_until(met: Callable[[], bool], worker: Worker, block: Block) -> None:
    """Attempts that all fail, until one met its fault; a hasty worker may time out before."""
    deadline = time.monotonic() + SECONDS
    while True:
        assert outcomes(worker.load([block])) == ["retry"]
        if met():
            return
        assert time.monotonic() < deadline, "no attempt met the fault"


def settled(worker: Worker, block: Block) -> str:
    """What becomes of a block; again while a statement given up still runs on the server."""
    deadline = time.monotonic() + SECONDS
    while (done := outcomes(worker.load([block]))) == ["retry"]:
        assert time.monotonic() < deadline, "the block is neither loaded nor parked"
    return done[0]


@pytest.fixture
def table(client: Client, database: str) -> str:
    """With a block-id column, and a deduplication window that one other insert ends."""
    return make(client, f"{database}.stamped", stamped=True, window=1)


@pytest.mark.parametrize("silent", [False, True], ids=["cut", "silent"])
@pytest.mark.parametrize("statement", [CLAIM, INSERT, MARK], ids=["claim", "insert", "mark"])
def test_an_answer_that_is_lost_leaves_one_copy(
    journal: Journal,
    proxy: Proxy,
    remote: Callable[..., Worker],
    client: Client,
    table: str,
    statement: str,
    *,
    silent: bool,
) -> None:
    """The statement happened once, nobody knows it; the next attempt finds out."""
    (block,) = journal.seal(table, batch(0, 1000))
    worker = remote(insert_timeout_seconds=3 if silent else 60)
    fate = "muted" if silent else "unanswered"
    proxy.drop_answers(statement, MORE_THAN_ONE, silent=silent)
    attempted_until(lambda: proxy.counts()[fate] > 0, worker, block)
    assert proxy.counts()[fate] == 1, "the HTTP client repeated a statement by itself"

    proxy.heal()
    others_insert(client, table)
    assert settled(remote(), block) == "loaded"
    assert copies(client, table) == ONE_COPY


@pytest.mark.parametrize(
    "question", ["FROM system.tables", "FROM system.columns", "attempt, claim"]
)
def test_an_answer_cut_within_its_head_is_no_answer(
    journal: Journal,
    proxy: Proxy,
    remote: Callable[..., Worker],
    client: Client,
    table: str,
    question: str,
) -> None:
    """Taken for an empty one it would say that there is no table, and park the block."""
    (block,) = journal.seal(table, batch(0, 1000))
    worker = remote()
    proxy.drop_answers(question, MORE_THAN_ONE, heard=WITHIN_HEAD)
    assert outcomes(worker.load([block])) == ["retry"]
    assert proxy.counts()["unanswered"] > 0
    proxy.heal()
    assert outcomes(worker.load([block])) == ["loaded"]
    assert client.query(f"SELECT countIf(_block = '{block.id}') FROM {table}").first_row == (1000,)


def test_without_the_ledger_a_lost_answer_doubles(
    journal: Journal,
    proxy: Proxy,
    remote: Callable[..., Worker],
    ledger: Ledger,
    client: Client,
    table: str,
) -> None:
    """Negative control: the same with the ledger emptied in between."""
    (block,) = journal.seal(table, batch(0, 1000))
    worker = remote()
    proxy.drop_answers(INSERT)
    assert outcomes(worker.load([block])) == ["retry"]
    others_insert(client, table)
    client.command(f"TRUNCATE TABLE {ledger.name}")
    assert outcomes(worker.load([block])) == ["loaded"]
    assert copies(client, table) == TWO_COPIES


@pytest.mark.usefixtures("without_logs")
@pytest.mark.parametrize(("window", "outcome"), [(100, "loaded"), (1, "parked")])
def test_a_lost_answer_without_block_column(
    journal: Journal,
    proxy: Proxy,
    remote: Callable[..., Worker],
    client: Client,
    database: str,
    window: int,
    outcome: str,
) -> None:
    """Inside the deduplication window it decides; outside the block is parked."""
    bare = make(client, f"{database}.bare", stamped=False, window=window)
    (block,) = journal.seal(bare, batch(0, 1000))
    worker = remote()
    proxy.drop_answers(INSERT)
    assert outcomes(worker.load([block])) == ["retry"]
    others_insert(client, bare)
    assert settled(worker, block) == outcome
    assert copies(client, bare) == ONE_COPY


def test_a_connection_cut_within_an_insert(
    journal: Journal, proxy: Proxy, remote: Callable[..., Worker], client: Client, table: str
) -> None:
    """Half the rows on the server are none; the next attempt brings all."""
    (block,) = journal.seal(table, batch(0, 1000))
    worker = remote()
    proxy.truncate(INSERT)
    assert outcomes(worker.load([block])) == ["retry"]
    assert copies(client, table) == NONE
    others_insert(client, table)
    assert settled(worker, block) == "loaded"
    assert copies(client, table) == ONE_COPY


@pytest.mark.parametrize("guarded", [True, False])
def test_an_insert_that_arrives_long_after_its_timeout(
    journal: Journal,
    proxy: Proxy,
    remote: Callable[..., Worker],
    client: Client,
    table: str,
    *,
    guarded: bool,
) -> None:
    """Held on the way, given up, done by another: it inserts nothing; unguarded it doubles."""
    (block,) = journal.seal(table, batch(0, 1000))
    hasty = remote(insert_timeout_seconds=3)
    if not guarded:
        hasty._ledger.holds = "1"
    late = proxy.hold(INSERT)
    attempted_until(lambda: late.is_held, hasty, block)
    assert settled(remote(), block) == "loaded"
    assert copies(client, table) == ONE_COPY
    others_insert(client, table)
    late.release()
    assert late.answer(SECONDS).startswith(b"HTTP/1.1 200 ")
    assert copies(client, table) == (ONE_COPY if guarded else TWO_COPIES)


def test_half_open_until_the_timeout(
    journal: Journal, proxy: Proxy, remote: Callable[..., Worker], client: Client, table: str
) -> None:
    """Connections that swallow everything: given up in time, nothing inserted, on again after."""
    (block,) = journal.seal(table, batch(0, 1000))
    worker = remote(insert_timeout_seconds=3)
    proxy.half_open(True)
    assert outcomes(worker.load([block])) == ["retry"]
    assert copies(client, table) == NONE
    proxy.half_open(False)
    assert settled(worker, block) == "loaded"
    assert copies(client, table) == ONE_COPY


@pytest.mark.long  # each kind of cut has a test of its own above
def test_random_cuts(
    journal: Journal, proxy: Proxy, remote: Callable[..., Worker], client: Client, table: str
) -> None:
    """Every tenth message, either way, cuts its connection somewhere inside it."""
    blocks = journal.seal(table, *(batch(i * 100, 100) for i in range(10)))
    worker = remote()
    proxy.lossy(0.1, seed=11)
    attempts = 0
    others_insert(client, table)
    for block in blocks:
        while (done := outcomes(worker.load([block]))) != ["loaded"]:
            assert done == ["retry"]
            attempts += 1
            assert attempts < 200, f"{block.id} is not loaded"
    assert proxy.counts()["cut"] > 5
    assert copies(client, table) == ONE_COPY
