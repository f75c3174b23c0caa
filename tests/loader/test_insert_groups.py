"""Small blocks of one table go into ClickHouse by one INSERT: all or none, each counted alone."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from clickhouse_connect.driver.exceptions import ClickHouseError

from loader.blocks import insert_groups
from loader.blocks import worker as blocks_worker
from loader.blocks.attempt import Attempt
from loader.blocks.fetch import Fetcher
from loader.blocks.insert_groups import Inserter, ReadyBlock, joins, open_for_more
from loader.blocks.worker import Worker
from loader.clickhouse.ledger import Ledger
from loader.clickhouse.tables import Target
from loader.core import plan
from loader.core.table_rules import Nature, Window
from loader.operate.resolve import resolve
from relay.clickhouse.errors import About
from relay.errors import Refused, Unavailable
from relay.records_pb2 import Block
from tests.broker.pipeline import wait_until
from tests.loader.blocks import batch, parked_blocks
from tests.loader.test_evidence import until_settled
from tests.loader.test_work import (
    before_the_next_insert,
    copies,
    killed,
    make,
    outcomes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from clickhouse_connect.driver.client import Client

    from tests.loader.blocks import Journal

MERGE_TREE = Nature(Window(0, None, "parts"))
STAMPED = {"id": "Int64", "name": "String", "_block": "String"}


@pytest.fixture
def table(client: Client, database: str) -> str:
    return make(client, f"{database}.stamped", stamped=True)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many blocks each INSERT had."""
    found: list[int] = []
    real = insert_groups.insert

    def counted(client: Any, ledger: Any, blocks: Sequence[Block], *rest: Any, **named: Any) -> Any:
        found.append(len(blocks))
        return real(client, ledger, blocks, *rest, **named)

    monkeypatch.setattr(insert_groups, "insert", counted)
    return found


def ready(table: str = "db.t", **other: Any) -> ReadyBlock:
    """An attempt at a block of ten rows, the first, whose claim leaves room for others."""
    target = Target(STAMPED, 0, MERGE_TREE, 0)
    block = Block(id=f"app:{table}:0:0:{other.get('first', 0)}", table=table)
    run = plan.Run("claim", 10, stamped=True, at="insert", attempt=1)
    alone, asked = other.get("alone", False), other.get("asked", False)
    one = Attempt(block, run, plan.Insert(None), target, (), token=int(alone), asked=asked)
    rows = other.get("batch", batch(0, 10))
    return ReadyBlock(one, target, rows, rows.nbytes, other.get("limit"))


def test_small_blocks_of_a_table_go_together() -> None:
    assert joins([ready()], ready(first=10), "_block")


@pytest.mark.parametrize(
    "other",
    [
        ready("db.other"),
        ready(alone=True),
        ready(asked=True),
        ready(limit=5),
        ready(batch=batch(0, 10).rename_columns(["id", "_block"])),
        ready(batch=batch(0, 10).select(["id"])),
        ready(batch=batch(0, 500_000)),
    ],
    ids=[
        "another table",
        "claimed alone",
        "attempted meanwhile",
        "limited",
        "a column of that name",
        "another schema",
        "too large",
    ],
)
def test_others_go_alone(other: ReadyBlock) -> None:
    """Whichever of the two comes first."""
    assert not joins([ready()], other, "_block")
    assert not joins([other], ready(), "_block")


def test_a_table_that_does_not_answer_is_waited_for_once_in_a_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its other INSERTs of the task would each take as long; those of other tables are sent."""
    sent: list[str] = []

    def insert(_: Any, __: Any, blocks: Sequence[Block], *___: Any, **____: Any) -> plan.Answer:
        sent.append(blocks[0].table)
        return plan.NoAnswer("no answer", About.SERVER)

    monkeypatch.setattr(insert_groups, "insert", insert)
    monkeypatch.setattr(insert_groups, "LONG_SECONDS", 0.0)
    settings: Any = SimpleNamespace(block_column="_block", rejected="park")
    nothing: Any = None
    inserter = Inserter(nothing, nothing, nothing, nothing, settings)

    def send(*tables: str) -> list[str]:
        groups = [ready(table) for table in tables]
        for group in groups:
            inserter._send([group])
        inserter._wait()
        done = [group.attempt.effect for group in groups]
        return [one.about for one in done if isinstance(one, plan.Done)]

    assert send("db.t", "db.t", "db.other") == [About.SERVER] * 3
    assert sent == ["db.t", "db.other"]
    monkeypatch.setattr(insert_groups, "LONG_SECONDS", 30.0)
    inserter.rest()
    assert send("db.t", "db.t") == [About.SERVER] * 2
    assert sent[2:] == ["db.t", "db.t"], "a failure that came at once costs nothing"
    inserter.close()


@pytest.mark.parametrize(
    ("one", "waits"),
    [
        (ready(), True),
        (ready(alone=True), False),
        (ready(asked=True), False),
        (ready(batch=batch(0, 700_000)), False),
    ],
    ids=["small", "claimed alone", "attempted meanwhile", "large"],
)
def test_only_what_may_be_joined_is_held_while_the_next_is_fetched(
    one: ReadyBlock, *, waits: bool
) -> None:
    assert open_for_more(one, "_block") is waits


def test_no_more_ids_than_a_request_has_room_for() -> None:
    group = [ready("db." + "t" * 190, first=i) for i in range(40)]

    assert joins(group[:5], group[5], "_block")
    assert not joins(group[:-1], group[-1], "_block")


@pytest.mark.parametrize(
    ("other", "together"),
    [
        ({}, True),
        ({"window": Window(100, 3600, "log")}, False),
        ({"partitioned": True}, False),
        ({"vanish": "rows expire"}, False),
        ({"views": ("db.v",)}, False),
    ],
    ids=["plain", "replicated", "partitioned", "rows vanish", "a view"],
)
def test_only_where_counting_is_enough_blocks_go_together(
    other: dict[str, Any], *, together: bool
) -> None:
    """Everywhere else the block's own token is the first repair."""
    target = Target(STAMPED, 0, dataclasses.replace(MERGE_TREE, **other), 0)
    assert target.counts("_block") is together
    assert not target.counts("_other"), "the block-id column during every attempt"


def test_one_part_and_each_block_its_rows(
    journal: Journal, worker: Worker, client: Client, table: str, statements: list[int]
) -> None:
    """Three tables' blocks, one INSERT each; every row carries its own block's id."""
    other = make(client, f"{table}_other", stamped=True)
    bare = make(client, f"{table}_bare", stamped=False, window=10_000)
    known = [journal.seal(one, batch(5000, 1))[0] for one in (table, other, bare)]
    assert outcomes(worker.load(known)) == ["loaded"] * 3
    for one in (table, other, bare):
        client.command(f"TRUNCATE TABLE {one}")
    statements.clear()
    blocks = [
        *journal.seal(table, *(batch(i * 100, 100 + i) for i in range(0, 12, 2))),
        *journal.seal(other, *(batch(i * 100, 100) for i in range(3))),
        *journal.seal(bare, *(batch(i * 100, 100) for i in range(2))),
    ]
    assert outcomes(worker.load(blocks)) == ["loaded"] * 11
    assert sorted(statements) == [1, 1, 3, 6]
    found = client.query(f"SELECT _block, count(), uniqExact(_part) FROM {table} GROUP BY _block")
    assert {tuple(row) for row in found.result_rows} == {
        (block.id, block.rows, 1) for block in blocks[:6]
    }
    assert client.query(f"SELECT uniqExact(_part) FROM {table}").result_rows == [(1,)]
    statements.clear()
    assert outcomes(worker.load(blocks)) == ["loaded"] * 11
    assert not statements


@pytest.mark.usefixtures("without_logs")
def test_without_the_column_that_was_to_be_counted_nothing_is_repeated(
    journal: Journal, worker: Worker, client: Client, database: str
) -> None:
    """Dropped after the INSERT: the token of several blocks is none of a single one's."""
    table = make(client, f"{database}.dropped", stamped=True, window=1_000)
    blocks = journal.seal(table, *(batch(i * 100, 100) for i in range(4)))
    killed(journal, blocks, "after_insert")
    client.command(f"ALTER TABLE {table} DROP COLUMN _block")
    assert outcomes(worker.load(blocks)) == ["parked"] * 4
    assert copies(client, table) == (400, 400)


@pytest.mark.parametrize("guarded", [True, False])
def test_overtaken_at_one_block_inserts_none(
    journal: Journal,
    worker: Worker,
    client: Client,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    guarded: bool,
) -> None:
    """Another loader took one of the blocks; without the INSERT's condition rows double."""
    blocks = journal.seal(table, *(batch(i * 100, 100) for i in range(3)))
    overtaker = Worker(journal.settings())

    def overtake() -> None:
        assert outcomes(overtaker.load(blocks[1:2])) == ["loaded"]

    before_the_next_insert(monkeypatch, overtake)
    if not guarded:
        worker._ledger.holding = "length({blocks:Array(String)})"
    first = outcomes(worker.load(blocks))
    overtaker.close()
    if not guarded:
        assert copies(client, table) == (400, 300)
        return
    assert first == ["retry"] * 3
    assert until_settled(worker, blocks) == ["loaded"] * 3
    assert copies(client, table) == (300, 300)


@pytest.mark.parametrize("human", ["retry", "absent"])
def test_blocks_that_waited_for_their_table_are_settled_at_once(
    journal: Journal,
    ledger: Ledger,
    client: Client,
    database: str,
    statements: list[int],
    human: plan.Human,
) -> None:
    """Each was set aside without a claim. The ledger knows it, so it goes alone."""
    table = f"{database}.late"
    sealed = journal.seal(table, *(batch(at * 10, 10) for at in range(3)))
    ids = [block.id for block in sealed]
    refused = resolve(journal.settings(), ledger, ids, "retry")
    assert [state for _, state, _ in refused] == ["aside"] * 3
    make(client, table, stamped=True)
    assert list(resolve(journal.settings(), ledger, ["all"], human)) == []
    settled = resolve(journal.settings(), ledger, ["aside"], human)
    assert [state for _, state, _ in settled] == ["loaded"] * 3
    assert statements == [1] * 3
    assert copies(client, table) == (30, 30)


def test_a_bad_block_parks_itself_alone(
    journal: Journal,
    worker: Worker,
    ledger: Ledger,
    client: Client,
    table: str,
    statements: list[int],
) -> None:
    """A refused INSERT of several says of which it was only when each was tried by itself."""
    client.command(f"ALTER TABLE {table} ADD CONSTRAINT small CHECK id < 1000")
    blocks = journal.seal(table, batch(0, 10), batch(995, 10), batch(100, 10))
    (damaged,) = journal.seal(table, batch(200, 10))
    damaged.crc32c ^= 1
    blocks.append(damaged)
    assert outcomes(worker.load(blocks)) == ["retry"] * 3 + ["parked"]
    assert copies(client, table) == (0, 0)
    assert outcomes(worker.load(blocks)) == ["loaded", "parked", "loaded", "parked"]
    assert statements == [3, 1, 1, 1]
    assert copies(client, table) == (20, 20)
    reasons = {block.id: reason for block, reason in parked_blocks(ledger)}
    assert reasons.keys() == {blocks[1].id, damaged.id}
    assert "small" in reasons[blocks[1].id]


def test_a_statement_that_still_runs_is_waited_for(
    journal: Journal,
    worker: Worker,
    client: Client,
    connect: Callable[..., Client],
    table: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is known by the ids of all of its blocks: who comes later inserts none of them."""
    blocks = journal.seal(table, *(batch(i * 100, 100) for i in range(3)))
    real = blocks_worker.Tables.facts
    seen: list[bool] = []

    def asked(self: Any, block: Block, *rest: Any) -> plan.InsertFacts:
        found = real(self, block, *rest)
        seen.append(bool(found.running))
        return found

    killed(journal, blocks, "after_prepare")
    monkeypatch.setattr(blocks_worker.Tables, "facts", asked)
    comment = ",".join(block.id for block in blocks)
    sleeping = connect()

    def sleep() -> None:
        with contextlib.suppress(ClickHouseError):
            sleeping.command(
                "SELECT sum(sleepEachRow(0.1)) FROM numbers(600) SETTINGS max_block_size = 1",
                settings={"log_comment": comment},
            )

    running = threading.Thread(target=sleep)
    running.start()
    try:
        wait_until(lambda: any(running_now(client, comment)), "the statement runs")
        assert outcomes(worker.load(blocks)) == ["retry"] * 3
        assert seen == [True] * 3
    finally:
        client.command(f"KILL QUERY WHERE Settings['log_comment'] = '{comment}' SYNC")
        running.join()
    assert outcomes(worker.load(blocks)) == ["loaded"] * 3
    assert copies(client, table) == (300, 300)


def running_now(client: Client, comment: str) -> Sequence[int]:
    """How many statements with this comment the server runs."""
    asked = "SELECT count() FROM system.processes WHERE Settings['log_comment'] = {c:String}"
    return [row[0] for row in client.query(asked, parameters={"c": comment}).result_rows]


@pytest.fixture
def two(journal: Journal, client: Client, database: str) -> list[Block]:
    """A block for each of two tables."""
    tables = [make(client, f"{database}.{name}", stamped=True) for name in "ab"]
    return [journal.seal(table, batch(0, 10))[0] for table in tables]


def held_until(monkeypatch: pytest.MonkeyPatch, event: threading.Event) -> list[bool]:
    """Hold each INSERT until the event; of each, whether it came."""
    came: list[bool] = []
    real = insert_groups.insert

    def held(*given: Any, **named: Any) -> Any:
        came.append(event.wait(30))
        return real(*given, **named)

    monkeypatch.setattr(insert_groups, "insert", held)
    return came


def test_the_next_blocks_are_fetched_while_an_insert_is_under_way(
    worker: Worker, two: list[Block], client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = threading.Event()
    fetch = Fetcher.fetch

    def noted(fetcher: Fetcher, block: Block, ahead: Sequence[Block]) -> pa.RecordBatch:
        rows = fetch(fetcher, block, ahead)
        if block.id == two[1].id:
            second.set()
        return rows

    monkeypatch.setattr(Fetcher, "fetch", noted)
    came = held_until(monkeypatch, second)
    assert outcomes(worker.load(two)) == ["loaded", "loaded"]
    assert came == [True, True]
    for block in two:
        assert copies(client, block.table) == (10, 10)


class UnderWay:
    """Holds each INSERT until so many are under way; their tables, as they begin."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, wanted: int) -> None:
        self.most = 0
        self.tables: list[str] = []
        self._now: list[str] = []
        self._changed = threading.Condition()
        self._wanted, self._real = wanted, insert_groups.insert
        monkeypatch.setattr(insert_groups, "insert", self._insert)

    def _insert(self, *given: Any, **named: Any) -> Any:
        table = given[2][0].table
        with self._changed:
            assert table not in self._now, f"two INSERTs into {table} at once"
            self._now.append(table)
            self.tables.append(table)
            self.most = max(self.most, len(self._now))
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self.most >= self._wanted, 30)
        try:
            return self._real(*given, **named)
        finally:
            with self._changed:
                self._now.remove(table)


def test_two_inserts_are_under_way_at_once(
    journal: Journal,
    worker: Worker,
    two: list[Block],
    client: Client,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One waits for the other to begin; never two into one table, though `c` takes three alone."""
    alone = make(client, f"{database}.c", stamped=False)
    blocks = [*journal.seal(alone, *(batch(n * 10, 10) for n in range(3))), *two]
    seen = UnderWay(monkeypatch, 2)
    assert outcomes(worker.load(blocks, at_once=2)) == ["loaded"] * 5
    assert seen.most == 2
    assert seen.tables.count(alone) == 3
    assert copies(client, alone) == (30, 30)
    for block in two:
        assert copies(client, block.table) == (10, 10)


def test_of_two_inserts_one_fails(
    worker: Worker,
    two: list[Block],
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other is loaded and marked; the next attempt finds what became of the first."""
    with monkeypatch.context() as patched:
        UnderWay(patched, 2)
        together = insert_groups.insert

        def unanswered(*given: Any, **named: Any) -> Any:
            answer = together(*given, **named)
            if given[2][0].table == two[0].table:
                raise Unavailable("the connection was lost", "")
            return answer

        patched.setattr(insert_groups, "insert", unanswered)
        assert outcomes(worker.load(two, at_once=2)) == ["retry", "loaded"]
    assert until_settled(worker, two) == ["loaded", "loaded"]
    for block in two:
        assert copies(client, block.table) == (10, 10)


@pytest.mark.parametrize("at_once", [1, 2])
def test_nobody_leaves_an_insert_behind(
    worker: Worker,
    two: list[Block],
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    at_once: int,
) -> None:
    """Who may not read the second topic is told so when the first INSERT has ended."""
    refused = threading.Event()
    fetch = Fetcher.fetch

    def denied(fetcher: Fetcher, block: Block, ahead: Sequence[Block]) -> pa.RecordBatch:
        if block.id == two[1].id:
            refused.set()
            raise Refused("this user may not read the topic", "Grant it.")
        return fetch(fetcher, block, ahead)

    with monkeypatch.context() as patch:
        patch.setattr(Fetcher, "fetch", denied)
        came = held_until(patch, refused)
        with pytest.raises(Refused, match="may not read"):
            worker.load(two, at_once=at_once)
        assert came == [True]
        assert copies(client, two[0].table) == (10, 10)
    assert outcomes(worker.load(two)) == ["loaded", "loaded"]
    assert copies(client, two[0].table) == (10, 10)
