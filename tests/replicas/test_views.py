"""A view on each of three replicas, whose rows may have another token on another replica."""

from __future__ import annotations

import contextlib

import pytest

from loader.blocks.worker import Worker
from loader.clickhouse.running_statements import Running, Still
from loader.core.retry_cause import RetryCause
from relay.records_pb2 import Block
from tests.broker.pipeline import wait_until
from tests.loader.blocks import await_next_second, batch
from tests.loader.test_changed_meanwhile import answer_lost
from tests.loader.test_work import outcomes
from tests.replicas.journal import COLUMNS, Replicated
from tests.replicas.rig import Replica, Rig

ROWS = 100

pytestmark = pytest.mark.long  # three servers that are started again, and their coordinator


def start_again(rig: Rig, *replicas: Replica) -> None:
    for one in replicas:
        one.kill()
    rig.heal()
    rig.await_active()


def await_further_second(replica: Replica) -> None:
    """Wait until nothing that comes is within a second of what was."""
    with contextlib.closing(replica.client()) as client:
        await_next_second(client)
        await_next_second(client)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("how", ["as it was made", "altered", "altered, and one was started since"])
def test_a_repeat_on_another_replica(
    rig: Rig,
    journal: Replicated,
    app: str,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    *,
    known: bool,
) -> None:
    """The first INSERT was r1's, and its answer was lost; r2 gives the view's rows another token.

    Negative control: a loader that asks only the replica in use.
    """
    table, behind = f"d{app}.t", f"d{app}.m"
    rig.make(table, COLUMNS, "ORDER BY id")
    rig.make(behind, "id Int64", "ORDER BY id")
    select = f"SELECT id FROM {table}"
    rig.everywhere(f"CREATE MATERIALIZED VIEW {table}_mv TO {behind} AS {select}")
    first, second, third = rig.replicas
    await_further_second(first)
    start_again(rig, *rig.replicas)
    await_further_second(first)
    if how != "as it was made":
        rig.everywhere(f"ALTER TABLE {table}_mv MODIFY QUERY {select} WHERE 1")
    await_further_second(first)
    if "started" in how:
        start_again(rig, first)
    if not known:
        monkeypatch.setattr(Running, "agree", lambda *_: True)
    (block,) = journal.seal(table, batch(0, ROWS))
    with contextlib.closing(Worker(journal.settings())) as worker:
        answer_lost(worker, [block])
    for one in (table, behind, f"{journal.settings().loader.database}.ledger"):
        second.command(f"SYSTEM SYNC REPLICA {one}")
    others = ",".join(one.front.url for one in (second, third, first))
    with contextlib.closing(Worker(journal.settings(url=others))) as worker:
        (outcome,) = worker.load([block])
    came = [second.rows(f"SELECT count() FROM {one}")[0][0] for one in (table, behind)]
    if how == "as it was made":
        assert (outcome.outcome, came) == ("loaded", [ROWS, ROWS]), outcome.reason
    elif known:
        assert (outcome.outcome, came) == ("parked", [ROWS, ROWS]), outcome.reason
    else:
        assert came == [ROWS, 2 * ROWS]


def test_a_replica_that_goes_between_two_questions_is_waited_for(
    rig: Rig, journal: Replicated, app: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that it runs nothing, and not which token it gives the view's rows."""
    table, behind = f"d{app}.t", f"d{app}.m"
    rig.make(table, COLUMNS, "ORDER BY id")
    rig.make(behind, "id Int64", "ORDER BY id")
    rig.everywhere(f"CREATE MATERIALIZED VIEW {table}_mv TO {behind} AS SELECT id FROM {table}")
    first, second, third = rig.replicas
    await_further_second(first)
    start_again(rig, *rig.replicas)
    (block,) = journal.seal(table, batch(0, ROWS))
    with contextlib.closing(Worker(journal.settings())) as worker:
        answer_lost(worker, [block])
    for one in (table, behind, f"{journal.settings().loader.database}.ledger"):
        second.command(f"SYSTEM SYNC REPLICA {one}")
    says_what_runs = Running.of

    def of(running: Running, asked: Block) -> Still:
        found = says_what_runs(running, asked)
        third.front.refuse()
        return found

    monkeypatch.setattr(Running, "of", of)
    others = ",".join(one.front.url for one in (second, third, first))
    with contextlib.closing(Worker(journal.settings(url=others))) as worker:
        (outcome,) = worker.load([block])
        assert (outcome.outcome, outcome.cause) == ("retry", RetryCause.STILL_RUNNING), outcome
        assert f"replica {third.front.url} does not answer" in outcome.reason
        monkeypatch.setattr(Running, "of", says_what_runs)
        third.front.refuse(False)
        wait_until(lambda: outcomes(worker.load([block])) == ["loaded"], "the block")
    came = [second.rows(f"SELECT count() FROM {one}")[0][0] for one in (table, behind)]
    assert came == [ROWS, ROWS]
