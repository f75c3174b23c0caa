"""An INSERT that Keeper did not answer: the replica shows its rows, and may drop them (319).

On one real replica, whose line to its coordinator goes dead at the INSERT's own request. What the
loader counts is not believed: a replica that is restarted drops what its coordinator does not have.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from loader.blocks.worker import Worker
from loader.clickhouse import unconfirmed_parts
from loader.clickhouse.client import ReplicaSilent
from loader.clickhouse.ledger import Ledger
from loader.clickhouse.server_records import ServerRecords
from loader.core.entries import NewEntry
from loader.core.plan import PARKED, PREPARED, Entry
from loader.core.retry_cause import RetryCause
from loader.core.set_aside_plan import Aside
from loader.journal.source import Start
from loader.journal.startup import ledger_of
from loader.spark.known_blocks import KnownBlocks
from loader.spark.set_aside import set_aside
from relay.config.settings import Settings
from relay.errors import Unavailable
from relay.records_pb2 import Block
from tests.loader.blocks import batch
from tests.replicas.journal import COLUMNS, STAMPED, Replicated
from tests.replicas.line import Line
from tests.replicas.rig import Replica, Rig
from tests.replicas.server import ITSELF

ROWS = 100
COMMIT = "/log/log-"
"""Stands in what an INSERT asks of the coordinator for its part."""

NO_WINDOW = "SETTINGS replicated_deduplication_window = 0"

pytestmark = pytest.mark.long  # a server, its coordinator, and five seconds of silence each


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """One replica, which asks its coordinator once and does not wait for minutes."""
    once = "<insert_keeper_max_retries>0</insert_keeper_max_retries>"
    with Rig(tmp_path_factory.mktemp("alone"), size=1, profile=once, line=Line()) as made:
        yield made


@pytest.fixture
def replica(alone: Rig) -> Replica:
    return alone.replicas[0]


@pytest.fixture
def line(alone: Rig) -> Line:
    assert alone.line is not None
    return alone.line


@pytest.fixture
def journal(bootstrap: str, alone: Rig, app: str, tmp_path: Path) -> Replicated:
    made = Replicated(bootstrap, alone, app, tmp_path)
    made.quorum = None
    ledger_of(made.settings(), make=True)
    return made


def unanswered(worker: Worker, block: Block, alone: Rig, line: Line, *, arrives: bool) -> None:
    """A first attempt whose part Keeper has, or has not; and it can be asked again."""
    line.lose(COMMIT, arrives=arrives)
    (first,) = worker.load([block])
    line.mend()
    assert (first.outcome, "Code: 319" in first.reason) == ("retry", True), first
    alone.await_active()


def number(replica: Replica, table: str) -> int:
    return int(replica.rows(f"SELECT count() FROM {table}")[0][0])


def confirmed(replica: Replica, table: str) -> int:
    """Rows that are there once the replica has compared its parts with the coordinator's."""
    replica.command(f"SYSTEM RESTART REPLICA {table}")
    return number(replica, table)


@pytest.mark.parametrize("arrives", [False, True])
def test_rows_that_keeper_may_not_have_are_no_proof(
    alone: Rig, replica: Replica, line: Line, journal: Replicated, app: str, *, arrives: bool
) -> None:
    """The block was called loaded by its count, and the replica dropped the rows minutes later."""
    table = f"d{app}.t"
    alone.make(table, STAMPED, "ORDER BY id")
    (block,) = journal.seal(table, batch(0, ROWS))
    with contextlib.closing(Worker(journal.settings())) as worker:
        unanswered(worker, block, alone, line, arrives=arrives)
        assert number(replica, table) == ROWS
        (second,) = worker.load([block])
    assert (second.outcome, second.figures.repeats) == ("loaded", 1), second
    assert confirmed(replica, table) == ROWS


@pytest.mark.parametrize("arrives", [False, True])
def test_without_a_token_the_replicas_own_look_is_waited_for(
    alone: Rig, replica: Replica, line: Line, journal: Replicated, app: str, *, arrives: bool
) -> None:
    """Whatever a person says; then the rows tell, or are inserted."""
    table = f"d{app}.t"
    alone.make(table, STAMPED, f"ORDER BY id {NO_WINDOW}")
    (block,) = journal.seal(table, batch(0, ROWS))
    with contextlib.closing(Worker(journal.settings())) as worker:
        unanswered(worker, block, alone, line, arrives=arrives)
        for human in ("nothing", "loaded", "discard", "absent"):
            (second,) = worker.load([block], human=human)
            assert (second.outcome, second.cause) == ("retry", RetryCause.UNCONFIRMED), second
        assert "still to check a part" in second.reason
        assert confirmed(replica, table) == ROWS * arrives
        (third,) = worker.load([block])
    assert (third.outcome, third.figures.inserts) == ("loaded", 1 - arrives), third
    assert confirmed(replica, table) == ROWS


@pytest.mark.parametrize("arrives", [False, True])
def test_rows_behind_another_table_are_waited_for(
    alone: Rig,
    replica: Replica,
    line: Line,
    journal: Replicated,
    app: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    arrives: bool,
) -> None:
    """Of those behind a Distributed table nobody here knows whether their replica keeps them."""
    table, behind = f"d{app}.everywhere", f"d{app}.t"
    alone.make(behind, STAMPED, f"ORDER BY id {NO_WINDOW}")
    engine = f"Distributed({ITSELF}, d{app}, t)"
    replica.command(f"CREATE TABLE {table} AS {behind} ENGINE = {engine}")
    (block,) = journal.seal(table, batch(0, ROWS))
    with contextlib.closing(Worker(journal.settings())) as worker:
        unanswered(worker, block, alone, line, arrives=arrives)
        assert number(replica, table) == ROWS
        for human in ("nothing", "loaded"):
            (second,) = worker.load([block], human=human)
            assert (second.outcome, second.cause) == ("retry", RetryCause.UNCONFIRMED), second
        assert confirmed(replica, behind) == ROWS * arrives
        monkeypatch.setattr(unconfirmed_parts, "LOOKED_SECONDS", 0)
        (third,) = worker.load([block])
    assert third.outcome == ("loaded" if arrives else "parked"), third


def killed(worker: Worker, block: Block, alone: Rig, line: Line) -> None:
    """The same, of a statement that somebody kills while it asks the coordinator time and again."""
    worker._client.set_client_setting("insert_keeper_max_retries", 20)
    line.lose(COMMIT, arrives=True)
    with concurrent.futures.ThreadPoolExecutor() as aside:
        loading = aside.submit(worker.load, [block])
        line.wait_until_dead()
        while not concurrent.futures.wait([loading], 0.5).done:
            alone.everywhere(f"KILL QUERY WHERE Settings['log_comment'] LIKE '%{block.id}%' ASYNC")
    line.mend()
    (first,) = loading.result()
    assert (first.outcome, "QUERY_WAS_CANCELLED" in first.reason) == ("retry", True), first
    alone.await_active()


@pytest.mark.parametrize(("viewed", "kill"), [(False, False), (True, False), (True, True)])
def test_a_part_without_an_entry_in_the_log_is_not_inserted_again(
    alone: Rig,
    replica: Replica,
    line: Line,
    journal: Replicated,
    app: str,
    *,
    viewed: bool,
    kill: bool,
) -> None:
    """Nobody can count them, and the part log has nothing: they came twice."""
    table = filled = f"d{app}.t"
    alone.make(filled, COLUMNS, f"ORDER BY id {NO_WINDOW}")
    if viewed:
        table = f"d{app}.null"
        replica.command(f"CREATE TABLE {table} ({COLUMNS}) ENGINE = Null")
        replica.command(f"CREATE MATERIALIZED VIEW {table}_mv TO {filled} AS SELECT * FROM {table}")
    else:  # so that the counter is not what tells
        replica.command(f"INSERT INTO {filled} VALUES (-1, '')")
        replica.command(f"INSERT INTO {filled} VALUES (-2, '')")
    others = number(replica, filled)
    (block,) = journal.seal(table, batch(0, ROWS))
    with contextlib.closing(Worker(journal.settings())) as worker:
        if kill:
            killed(worker, block, alone, line)
        else:
            unanswered(worker, block, alone, line, arrives=True)
        (second,) = worker.load([block])
    assert confirmed(replica, filled) == ROWS + others
    assert second.outcome == "parked", second
    assert ("error 394" if kill else "UNKNOWN_STATUS_OF_INSERT") in second.reason


def test_keeper_says_who_else_has_the_rows(alone: Rig, replica: Replica, app: str) -> None:
    """While it was away, another replica seemed to have them, whose log nobody here has."""
    table = f"d{app}.t"
    alone.make(table, COLUMNS, "ORDER BY id")
    with contextlib.closing(replica.client()) as client:
        asked = ServerRecords(cast("Any", client), several=False)
        assert not asked.elsewhere({table})
        alone.lose_coordinator()
        try:
            with pytest.raises(ReplicaSilent, match="Keeper does not say"):
                asked.elsewhere({table})
        finally:
            alone.return_coordinator()
            alone.await_active()
        assert not asked.elsewhere({table})


def seen_by_the_driver(settings: Settings, ledger: Ledger, block: Block) -> bool:
    """Whether it is settled for a micro-batch, whose position goes behind it then."""
    row: Any = SimpleNamespace(block=block.SerializeToString(), partition=0, offset=0)
    return not KnownBlocks(ledger, Start(settings, "J", {0: 0}), "_block").look([row]).left


def seen_by_a_worker(settings: Settings, _: Ledger, block: Block) -> bool:
    with contextlib.closing(Worker(settings)) as worker:
        (found,) = worker.load([block])
    return found.outcome == "parked"


def seen_as_settled_already(_: Settings, ledger: Ledger, block: Block) -> bool:
    return set_aside(ledger, [Aside(block, "too many parts")]) == {block.id: "parked"}


@pytest.mark.parametrize("arrives", [False, True])
@pytest.mark.parametrize("seen", [seen_by_the_driver, seen_by_a_worker, seen_as_settled_already])
def test_what_settled_a_block_is_there_after_whoever_saw_it_went_on(
    bootstrap: str,
    alone: Rig,
    replica: Replica,
    line: Line,
    app: str,
    tmp_path: Path,
    *,
    seen: Callable[[Settings, Ledger, Block], bool],
    arrives: bool,
) -> None:
    """Keeper did not answer its row; the replica dropped that, and nobody tried the block again."""
    made = Replicated(bootstrap, alone, app, tmp_path)
    made.quorum = None
    made.make_ledger()
    table = f"d{app}.t"
    alone.make(table, STAMPED, "ORDER BY id")
    (block,) = made.seal(table, batch(0, ROWS))
    settings = made.settings()
    ledger = ledger_of(settings)
    ledger.write([NewEntry(block, Entry(PREPARED, 1, "c", rows=ROWS))])
    replica.command(f"SYSTEM SYNC REPLICA {ledger.table}")  # so that it reads the log no more
    line.lose(COMMIT, arrives=arrives)
    try:
        with pytest.raises(Unavailable, match="UNKNOWN_STATUS_OF_INSERT"):
            ledger.write([NewEntry(block, Entry(PARKED, 1, "c", reason="why", rows=ROWS))])
    finally:
        line.mend()
    alone.await_active()
    assert seen(settings, ledger, block)
    replica.command(f"SYSTEM RESTART REPLICA {ledger.table}")
    states = [one.state for one in ledger.entries([block])[block.id]]
    assert states.count(PARKED) >= 1, states
    assert [one.block.id for one in ledger.waiting()] == [block.id]
