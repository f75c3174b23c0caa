"""An INSERT that hangs on one replica, and loaders that come through another."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from loader.blocks import worker as blocks_worker
from loader.blocks.worker import Worker
from loader.clickhouse import running_statements
from loader.clickhouse.forgotten_blocks import Forgotten
from loader.core.positions import Unsure
from loader.journal.startup import ledger_of
from loader.operate.supersede import supersede
from relay.errors import Unavailable
from relay.records_pb2 import Block
from tests.broker.pipeline import wait_until
from tests.loader.blocks import batch, stands
from tests.replicas.front import Held
from tests.replicas.journal import Replicated
from tests.replicas.rig import Rig

ROWS = 40_000
"""Of a block: a server reads max_query_size (256 KiB) of a body before it runs the statement."""

pytestmark = pytest.mark.long  # three servers and their coordinator, a minute or more


@pytest.fixture
def workers() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as made:
        yield made


def worker(
    journal: Replicated, owned: contextlib.ExitStack, url: str = "", **loader: float
) -> Worker:
    made = Worker(journal.settings(url=url, **loader))
    owned.callback(made.close)
    return made


def others_first(rig: Rig) -> str:
    """clickhouse.url as a loader has it that uses r2."""
    r1, r2, r3 = (one.front.url for one in rig.replicas)
    return f"{r2},{r3},{r1}"


@contextlib.contextmanager
def hanging(rig: Rig, journal: Replicated, block: Block, seconds: float = 600) -> Iterator[Held]:
    """An INSERT of the block that runs on r1 and waits for its last bytes, at most so long."""
    first = Worker(journal.settings(insert_timeout_seconds=seconds))
    held = rig.replicas[0].front.hold("ARROW1")
    loading = threading.Thread(target=first.load, args=([block],))
    loading.start()
    try:
        held.wait_until_held()
        asked = "SELECT count() FROM system.processes WHERE query LIKE 'INSERT INTO%input(%'"
        wait_until(lambda: rig.replicas[0].rows(asked) == [(1,)], "the INSERT runs on r1")
        yield held
    finally:
        held.release()
        rig.replicas[0].resume()
        loading.join(60)
        first.close()


def copies(rig: Rig, table: str) -> list[tuple[int, int]]:
    """(rows, different rows) of each replica, when it has all."""
    found = []
    for one in rig.replicas:
        one.command(f"SYSTEM SYNC REPLICA {table}")
        found.append(tuple(one.rows(f"SELECT count(), uniqExact(id) FROM {table}")[0]))
    return found


def test_supersede_waits_for_an_insert_on_another_replica(
    rig: Rig, journal: Replicated, table: str
) -> None:
    """B4: it ended with 0, then the superseded rows appeared."""
    (block,) = journal.seal(table, batch(0, ROWS))
    settings = journal.settings(url=others_first(rig), insert_timeout_seconds=2)
    ledger = ledger_of(settings)
    with hanging(rig, journal, block) as held:
        with pytest.raises(Unavailable, match=rf"still runs on {rig.replicas[0].front.url}"):
            supersede(settings, ledger, [block], keep=False, why="a rewind", check=stands)
        assert copies(rig, table) == [(0, 0)] * 3
        held.release()
    done = supersede(settings, ledger, [block], keep=False, why="a rewind", check=stands)
    assert done.blocks == 1
    assert copies(rig, table) == [(0, 0)] * 3


def test_asked_of_one_replica_alone_the_rows_appear_afterwards(
    rig: Rig, journal: Replicated, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control of the test above."""
    monkeypatch.setattr(
        blocks_worker, "Running", lambda client, _: running_statements.Running(client)
    )
    (block,) = journal.seal(table, batch(0, ROWS))
    settings = journal.settings(url=others_first(rig), insert_timeout_seconds=2)
    with hanging(rig, journal, block) as held:
        assert (
            supersede(settings, ledger_of(settings), [block], keep=False, why="", check=stands).rows
            == 0
        )
        held.release()
    wait_until(lambda: copies(rig, table) == [(ROWS, ROWS)] * 3, "superseded rows")


def test_a_loader_waits_and_names_the_replica(
    rig: Rig, journal: Replicated, table: str, workers: contextlib.ExitStack
) -> None:
    """Another loader, through r2: it inserts nothing while the first one's statement may."""
    (block,) = journal.seal(table, batch(0, ROWS))
    second = worker(journal, workers, others_first(rig))
    with hanging(rig, journal, block):
        (outcome,) = second.load([block])
        assert outcome.outcome == "retry"
        assert f"still runs on {rig.replicas[0].front.url}" in outcome.reason
    assert [one.outcome for one in second.load([block])] == ["loaded"]
    assert copies(rig, table) == [(ROWS, ROWS)] * 3


def test_a_replica_that_does_not_answer_is_waited_for(
    rig: Rig, journal: Replicated, table: str
) -> None:
    """Stopped in the middle of the INSERT, it may go on with it at any time."""
    (block,) = journal.seal(table, batch(0, ROWS))
    settings = journal.settings(url=others_first(rig), insert_timeout_seconds=2)
    ledger = ledger_of(settings)
    silent = rig.replicas[0]
    with hanging(rig, journal, block):
        silent.pause()
        with pytest.raises(Unavailable, match=rf"replica {silent.front.url} does not answer"):
            supersede(settings, ledger, [block], keep=False, why="a rewind", check=stands)
        silent.resume()
    supersede(settings, ledger, [block], keep=False, why="a rewind", check=stands)
    assert copies(rig, table) == [(0, 0)] * 3


def test_a_restarted_replica_runs_nothing_of_before(
    rig: Rig, journal: Replicated, table: str, workers: contextlib.ExitStack
) -> None:
    """Killed in the middle of the INSERT: unknown while it is away, decided when it is back."""
    (block,) = journal.seal(table, batch(0, ROWS))
    second = worker(journal, workers, others_first(rig))
    killed = rig.replicas[0]
    with hanging(rig, journal, block):
        killed.kill()
        still = second._running.of(block)
        assert still.running
        assert still.silent
        assert f"replica {killed.front.url} does not answer" in still.reason
        killed.start()
    wait_until(lambda: not second._running.of(block).running, "it answers")
    assert len(second._running.of(block).definitions) == len(rig.replicas)


def test_a_block_that_the_ledger_lost_is_asked_about_while_it_runs_elsewhere(
    rig: Rig, journal: Replicated, table: str
) -> None:
    """Its INSERT hangs on r1; through r2 the table looks empty. Of a silent r1 nobody knows."""
    block, other = journal.seal(table, batch(0, ROWS), batch(ROWS, 10))
    settings = journal.settings(url=others_first(rig))
    ledger = ledger_of(settings)
    places = [(0, 0, block), (0, 1, other)]
    every = running_statements.Running(ledger.client, settings.clickhouse)
    with hanging(rig, journal, block):
        alone = Forgotten(ledger, "_block", {0: Unsure(9)})  # as before: negative control
        assert alone.among(places) == set()
        assert Forgotten(ledger, "_block", {0: Unsure(9)}, every).among(places) == {block.id}
        rig.replicas[0].pause()
        asked = every.of_app(journal.app, {table})
        assert asked == running_statements.Runs(frozenset(), frozenset({table}))
        rig.replicas[0].resume()
    every.close()


def test_a_replica_without_the_table_says_nothing_of_the_others(
    rig: Rig, journal: Replicated, table: str
) -> None:
    """A new one behind a balancer; a loader that uses r2 took the INSERT for ended."""
    _, second, third = rig.replicas
    assert rig.balancer is not None
    (block,) = journal.seal(table, batch(0, ROWS))
    third.command(f"DROP TABLE {table} SYNC")
    ledger = ledger_of(journal.settings(url=second.front.url))
    balanced = journal.settings(url=rig.balancer.url).clickhouse
    try:
        with contextlib.closing(running_statements.Running(ledger.client, balanced)) as asked:
            with hanging(rig, journal, block):
                for _ in rig.replicas:  # begin with another one each time, until r1 ends it
                    still = asked.of(block)
                    assert f"still runs on r1, behind {rig.balancer.url}" in still.reason
                runs = running_statements.Runs(frozenset({block.id}))
                assert asked.of_app(journal.app, {table}) == runs
            assert len(asked.of(block).definitions) == 2
    finally:
        rig.everywhere(f"DROP TABLE IF EXISTS {table} SYNC")  # for which others would wait


@pytest.mark.long
def test_one_that_was_dropped_is_waited_for_no_longer(
    rig: Rig, journal: Replicated, table: str, workers: contextlib.ExitStack
) -> None:
    """Gone for good, and said so to the coordinator: its INSERT can't commit, though it lives."""
    (block,) = journal.seal(table, batch(0, ROWS))
    second = worker(journal, workers, others_first(rig))
    gone, other, _ = rig.replicas
    with hanging(rig, journal, block, 40) as held:
        gone.pause()
        assert second._running.of(block).silent
        wait_until(lambda: dropped(rig, table), "the coordinator forgets r1")
        wait_until(lambda: not second._running.of(block).running, "r1 is waited for no longer")
        gone.resume()
        held.release()
        asked = "SELECT count() FROM system.processes WHERE query LIKE 'INSERT INTO%input(%'"
        wait_until(lambda: gone.rows(asked) == [(0,)], "its statement ends", 280)
    assert other.rows(f"SELECT count() FROM {table}") == [(0,)]
    assert gone.rows(f"SELECT count() FROM {table}") == [(0,)]
    # It will never be active again, for which other tests of this rig wait.
    rig.everywhere(f"DROP TABLE {table} SYNC")


def dropped(rig: Rig, table: str) -> bool:
    """Whether r2 could drop r1, which has to be inactive for it."""
    try:
        rig.replicas[1].command(f"SYSTEM DROP REPLICA 'r1' FROM TABLE {table}")
    except DatabaseError as error:
        if "active" not in str(error):  # "it's active", or "is active" in older versions
            raise
        return False
    return True
