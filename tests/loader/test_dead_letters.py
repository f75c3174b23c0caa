"""loader.rejected = "dead": messages that the table refuses become dead letters, each once."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest

from loader.blocks import dead_letters
from loader.blocks.worker import Worker
from loader.core import plan
from loader.core.entries import NewEntry
from loader.operate.resolve import resolve
from loader.spark.set_aside import SetAside
from relay.core.events import Failure
from relay.kafka.errors import TransactionFailed
from relay.kafka.transactional_producer import TransactionalProducer
from relay.names import LEFT_OUT
from relay.schema.dead_reason import DeadKind
from tests.loader.blocks import batch
from tests.loader.test_left_out import WAYS, make
from tests.loader.test_work import copies, killed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clickhouse_connect.driver.client import Client

    from loader.blocks.attempt import Outcome
    from loader.clickhouse.ledger import Ledger
    from relay.records_pb2 import Block
    from tests.loader.blocks import Journal

STEPS = [
    pytest.param("before_prepare:kill", marks=pytest.mark.long),
    pytest.param("letters_taken_over:kill", marks=pytest.mark.long),
    pytest.param("after_prepare:kill", marks=pytest.mark.long),
    pytest.param("letters_begun:kill", marks=pytest.mark.long),
    "letters_written:kill",
    "letters_committed:kill",
    pytest.param("after_loaded:kill", marks=pytest.mark.long),
]


def sealed_and_loaded(journal: Journal, table: str, rows: int, each: int = 1) -> Outcome:
    """What becomes of a block of so many rows; a loader looks for the messages it refuses."""
    with contextlib.closing(Worker(journal.settings(), isolates=True)) as worker:
        (one,) = worker.load(journal.seal(table, batch(0, rows), each=each))
    return one


def mended_and_retried(journal: Journal, ledger: Ledger, client: Client, rest: Block) -> str:
    """The state of the block, once the table takes its messages and a person says "retry"."""
    client.command(f"ALTER TABLE {rest.table} DROP CONSTRAINT small")
    ((_, state, reason),) = resolve(journal.settings(), ledger, [rest.id], "retry")
    print(reason)
    return state


@pytest.fixture
def table(database: str) -> str:
    return f"{database}.t"


@pytest.fixture
def rest(
    journal: Journal, ledger: Ledger, client: Client, table: str, request: pytest.FixtureRequest
) -> Block:
    """The block of two messages that were left out, as it stands aside.

    `request.param`: "park", which is the setting then, or "large", of the messages.
    """
    kind = getattr(request, "param", "dead")
    journal.rejected = "park" if kind == "park" else "dead"
    make(client, table, WAYS["check"])
    journal.sources(table, 100, padding=3_000 if kind == "large" else 0)
    one = sealed_and_loaded(journal, table, 100)
    assert (one.outcome, one.left_out) == ("loaded", 2), one.reason
    (waiting,) = ledger.waiting()
    assert waiting.aside == (journal.rejected == "dead")
    return waiting.block


@pytest.fixture
def worker(journal: Journal, rest: Block) -> Iterator[Worker]:
    assert rest.id.endswith(LEFT_OUT)
    with contextlib.closing(Worker(journal.settings(), isolates=True)) as made:
        yield made


def finish(journal: Journal, ledger: Ledger) -> list[str]:
    """As a loader tries what stands aside; gives what it says."""
    said: list[str] = []
    SetAside(journal.settings(), ledger, lambda text, **_: said.append(text)).finish()
    return said


def are_dead(journal: Journal, ledger: Ledger, client: Client, table: str) -> None:
    """Each once, none in the table, and the ledger says so."""
    assert [letter.source.offset for letter in journal.letters()] == [17, 42]
    assert ledger.counts() == [(table, plan.DEAD, 1, 2), (table, plan.LOADED, 1, 98)]
    assert copies(client, table) == (98, 98)
    assert ledger.waiting() == []


def test_they_are_dead_letters_as_a_relays(
    journal: Journal, rest: Block, ledger: Ledger, client: Client, table: str
) -> None:
    (said,) = finish(journal, ledger)
    are_dead(journal, ledger, client, table)
    first, _ = journal.letters()
    assert (first.table, first.source_topic, first.value) == (table, journal.source, b"value 17")
    assert first.reason.kind == DeadKind.REJECTED
    assert first.reason.text.startswith("Code: 469. Constraint `small` for table")
    assert first.origin is not None
    assert first.origin.key == b"key 17"
    assert list(first.origin.headers) == [("table", table.encode()), ("trace", b"t17")]
    assert (first.block, first.whole) == (rest.id, True)
    where = f"dead letters of {journal.app}.dead, 0:0 to 0:1: 2 messages that the table refuses"
    assert said.startswith(f"dead {rest.id}, which had been set aside: {where}")
    assert finish(journal, ledger) == []
    are_dead(journal, ledger, client, table)


@pytest.mark.parametrize("step", STEPS)
def test_a_loader_dies(
    journal: Journal, rest: Block, ledger: Ledger, client: Client, table: str, step: str
) -> None:
    """Wherever: the next one writes them, or finds them."""
    killed(journal, [], step)
    assert [one.block for one in ledger.waiting()] == ([] if "after_loaded" in step else [rest])
    finish(journal, ledger)
    are_dead(journal, ledger, client, table)


def test_two_loaders_at_once(
    journal: Journal, rest: Block, ledger: Ledger, client: Client, table: str
) -> None:
    outcomes: list[str] = []

    def try_until_dead() -> None:
        with contextlib.closing(Worker(journal.settings())) as worker:
            while not outcomes or outcomes[-1] != plan.DEAD:
                outcomes.extend(one.outcome for one in worker.load([rest], (), "dead"))

    threads = [threading.Thread(target=try_until_dead) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(outcomes) <= {plan.DEAD, "retry"}
    are_dead(journal, ledger, client, table)


@pytest.mark.parametrize("done", [True, False], ids=["committed", "not committed"])
def test_the_answer_to_the_commit_is_lost(
    journal: Journal,
    worker: Worker,
    rest: Block,
    ledger: Ledger,
    client: Client,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    done: bool,
) -> None:
    real = TransactionalProducer.commit

    def lost(producer: TransactionalProducer) -> bool:
        if done:
            real(producer)
        raise TransactionFailed(Failure.UNKNOWN, "no answer")

    monkeypatch.setattr(TransactionalProducer, "commit", lost)
    (one,) = worker.load([rest], (), "dead")
    assert (one.outcome, "no answer" in one.reason) == ("retry", True)
    monkeypatch.undo()
    (one,) = worker.load([rest], (), "dead")
    assert one.outcome == plan.DEAD, one.reason
    are_dead(journal, ledger, client, table)


def paused(
    worker: Worker, rest: Block, monkeypatch: pytest.MonkeyPatch, step: str, meanwhile: Any
) -> str:
    """The outcome of an attempt that pauses at a step, once, while another does something."""
    real = dead_letters.reached

    def pause(name: str) -> None:
        if name == step:
            monkeypatch.setattr(dead_letters, "reached", real)
            meanwhile()

    monkeypatch.setattr(dead_letters, "reached", pause)
    (one,) = worker.load([rest], (), "dead")
    return one.outcome


@pytest.mark.parametrize("step", ["letters_begun", "letters_written"])
def test_a_loader_that_wakes_late_writes_nothing(  # noqa: PLR0917 - fixtures
    journal: Journal,
    worker: Worker,
    rest: Block,
    ledger: Ledger,
    client: Client,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    paused(worker, rest, monkeypatch, step, lambda: finish(journal, ledger))
    are_dead(journal, ledger, client, table)


def test_a_take_over_for_one_block_lets_no_other_write_late(
    journal: Journal,
    ledger: Ledger,
    client: Client,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the first two an earlier loader has claims, so this one fences whoever writes; twice.

    In between another writes the letters of the third, of which this one has read the ledger.
    """
    journal.rejected = "dead"
    make(client, table, "CONSTRAINT small CHECK id % 100 NOT IN (17, 42)")
    journal.sources(table, 300)
    sealed = journal.seal(table, *(batch(n * 100, 100) for n in range(3)), each=1)
    settings = journal.settings()
    with contextlib.closing(Worker(settings, isolates=True)) as worker:
        assert [worker.load([block])[0].left_out for block in sealed] == [2, 2, 2]
        blocks = sorted((one.block for one in ledger.waiting()), key=lambda one: one.first_offset)
        died = plan.Entry(plan.PREPARED, 9, "died", seen=0, rows=2, sent=plan.DEAD_LETTERS)
        ledger.write([NewEntry(block, died) for block in blocks[:2]])
        real = dead_letters.reached

        def pause(name: str) -> None:
            if name == "letters_looked_for":
                monkeypatch.setattr(dead_letters, "reached", real)
                with contextlib.closing(Worker(settings)) as other:
                    (third,) = other.load(blocks[2:], (), "dead")
                assert third.outcome == plan.DEAD, third.reason

        monkeypatch.setattr(dead_letters, "reached", pause)
        outcomes = [one.outcome for one in worker.load(blocks, (), "dead")]
    assert outcomes == [plan.DEAD, plan.DEAD, "retry"]
    assert len(journal.letters()) == 6
    assert finish(journal, ledger) == []


def test_a_person_has_the_rows_loaded_meanwhile(
    journal: Journal,
    worker: Worker,
    rest: Block,
    ledger: Ledger,
    client: Client,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The person's attempt fences the loader's: rows, and no letter."""

    def retry() -> None:
        assert mended_and_retried(journal, ledger, client, rest) == plan.LOADED

    assert paused(worker, rest, monkeypatch, "letters_written", retry) == "retry"
    assert copies(client, table) == (100, 100)
    assert journal.letters() == []


def test_a_person_who_does_not_fence_doubles(
    journal: Journal,
    worker: Worker,
    rest: Block,
    ledger: Ledger,
    client: Client,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control: rows and letters."""

    def look(*_: object) -> plan.LettersFound:
        return plan.LettersFound("never")

    def retry() -> None:
        mended_and_retried(journal, ledger, client, rest)

    monkeypatch.setattr(dead_letters.DeadLetterWriter, "_look", look)
    paused(worker, rest, monkeypatch, "letters_written", retry)
    assert copies(client, table) == (100, 100)
    assert len(journal.letters()) == 2


@pytest.mark.parametrize("step", ["letters_written:kill", "letters_committed:kill"])
def test_a_person_says_retry_after_a_loader_died(
    journal: Journal, rest: Block, ledger: Ledger, client: Client, table: str, step: str
) -> None:
    """Letters that are there settle the block; else its rows are loaded."""
    killed(journal, [], step)
    state = mended_and_retried(journal, ledger, client, rest)
    if step.startswith("letters_committed"):
        assert state == plan.DEAD
        are_dead(journal, ledger, client, table)
    else:
        assert state == plan.LOADED
        assert (copies(client, table), journal.letters()) == ((100, 100), [])


def test_retention_took_a_message(
    journal: Journal, rest: Block, ledger: Ledger, client: Client, table: str
) -> None:
    """It stays parked, and its rows can still be loaded."""
    journal.delete_sources(before=20)
    (said,) = finish(journal, ledger)
    assert said.startswith(
        f"parked {rest.id}, which had been set aside: 1 of its 2 messages cannot"
    )
    assert f"{journal.source}[0] holds 20 to " in said
    assert journal.letters() == []
    assert ledger.counts() == [(table, plan.LOADED, 1, 98), (table, plan.PARKED, 1, 2)]
    assert mended_and_retried(journal, ledger, client, rest) == plan.LOADED


def test_another_topic_has_the_name_now(journal: Journal, worker: Worker, rest: Block) -> None:
    rest.source_topic_id = "another"
    (one,) = worker.load([rest], (), "dead")
    assert one.outcome == plan.PARKED
    assert f"came from {journal.source} with the id another" in one.reason


def test_what_the_topic_of_dead_letters_lost(
    journal: Journal, worker: Worker, rest: Block, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can tell whether they were written: the block is parked, and can be given up."""

    def lost(_: TransactionalProducer) -> bool:
        raise TransactionFailed(Failure.UNKNOWN, "no answer")

    monkeypatch.setattr(TransactionalProducer, "commit", lost)
    worker.load([rest], (), "dead")
    monkeypatch.undo()
    journal.delete_letters()
    (one,) = worker.load([rest], (), "dead")
    assert (one.outcome, "may be dead letters already" in one.reason) == (plan.PARKED, True)
    (one,) = worker.load([rest], (), "discard", "not needed")
    assert one.outcome == plan.DISCARDED


@pytest.mark.parametrize("rest", ["park"], indirect=True)
def test_by_hand(journal: Journal, worker: Worker, rest: Block, table: str) -> None:
    """What was parked before: said first, then done."""
    status, said = journal.run("parked resolve", "all", "--dead")
    assert status == 0, said
    assert f"would become a dead letter: {journal.source} 0:17, of {table}" in said
    assert "nothing was done" in said
    assert journal.letters() == []
    (whole,) = journal.seal(table, batch(17, 1), each=1)
    assert worker.load([whole])[0].outcome == plan.PARKED
    status, said = journal.run("parked resolve", whole.id, "--dead", "--run")
    assert (status, f"no messages that were left out of a block: {whole.id}" in said) == (2, True)
    (one,) = worker.load([whole], (), "discard", "a test's")
    assert one.outcome == plan.DISCARDED
    status, said = journal.run("parked resolve", rest.id, "--dead", "--run")
    assert status == 0, said
    assert f"{rest.id}: dead: dead letters of {journal.app}.dead, 0:0 to 0:1" in said
    assert [letter.source.offset for letter in journal.letters()] == [17, 42]
    status, said = journal.run("parked resolve", rest.id, "--dead", "--run")
    assert (status, f"{rest.id} is dead: dead letters of" in said) == (2, True)


@pytest.mark.parametrize("rest", ["large"], indirect=True)
def test_one_that_is_too_large_leaves_its_value_behind(
    journal: Journal, worker: Worker, rest: Block, ledger: Ledger, client: Client, table: str
) -> None:
    journal.limit_letters(2_000)
    outcomes = [worker.load([rest], (), "dead")[0].outcome for _ in range(3)]
    assert outcomes == ["retry", plan.DEAD, plan.DEAD]
    are_dead(journal, ledger, client, table)
    first, _ = journal.letters()
    assert (first.whole, first.value) == (False, None)
    assert "larger than its topic accepts" in first.reason.text


@pytest.mark.parametrize("each", [1, 4], ids=["all of four", "the only one"])
def test_a_block_of_nothing_but_refused_messages(
    journal: Journal, ledger: Ledger, client: Client, table: str, each: int
) -> None:
    """Of a quiet table a block often has a single one; parked, it would wait for a person."""
    make(client, table, "CONSTRAINT none CHECK id < 0")
    journal.sources(table, 4)
    journal.rejected = "dead"
    one = sealed_and_loaded(journal, table, 4, each)
    assert (one.outcome, one.rows, one.left_out) == (plan.LOADED, 0, 4 // each), one.reason
    finish(journal, ledger)
    assert len(journal.letters()) == 4 // each
    assert ledger.counts() == [(table, plan.DEAD, 1, 4), (table, plan.LOADED, 1, 0)]
    assert copies(client, table) == (0, 0)
