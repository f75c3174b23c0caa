"""ClickHouse is set back, and messages left out since are dead letters: each stays one letter.

The letters are in Kafka and stay; ledger and tables know nothing of them any more.
"""

from __future__ import annotations

import contextlib
import shutil
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from loader.blocks.worker import Worker
from loader.core import plan
from loader.journal import past_letters
from loader.operate.resolve import resolve
from relay import names
from relay.clickhouse.quoting import quoted_table
from relay.kafka import partition_reader
from relay.kafka.partition_reader import records
from relay.names import LEFT_OUT
from relay.operate.verify.judge.contents import LetterJudge, LoaderLetter
from relay.operate.verify.read.landed_rows import LandedRows
from tests.broker.pipeline import is_stable, wait_until
from tests.loader.blocks import batch
from tests.loader.restored import Backup
from tests.loader.test_left_out import WAYS, make
from tests.loader.test_set_back import ledger_of
from tests.loader.test_work import copies
from tests.loader.unsparked import Run, Unsparked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clickhouse_connect.driver.client import Client
    from confluent_kafka import Message

    from loader.clickhouse.ledger import Ledger
    from relay.records_pb2 import Block
    from tests.loader.blocks import Journal


@pytest.fixture
def loader(journal: Journal) -> Unsparked:
    journal.rejected = "dead"
    return Unsparked(journal)


@pytest.fixture
def table(loader: Unsparked, client: Client, database: str) -> str:
    """With a first block of 100 rows, none of them refused."""
    made = make(client, f"{database}.t", WAYS["check"])
    loader.journal.sources(made, 100)
    loader.journal.seal(made, batch(200, 100), each=1)
    loader.run()
    assert copies(client, made) == (100, 100)
    return made


def sealed(loader: Unsparked, table: str) -> Block:
    """A block of 100 messages, of which the table refuses those at 17 and 42."""
    (block,) = loader.journal.seal(table, batch(0, 100), each=1)
    return block


def are_letters_once(loader: Unsparked, client: Client, table: str, rows: int = 198) -> None:
    """Each message, and `relay verify --deep` finds nothing wrong with them."""
    letters = loader.journal.letters()
    assert [letter.source.offset for letter in letters] == [17, 42]
    assert copies(client, table) == (rows, rows)
    judge = LetterJudge(0, 0, {letter.block.removesuffix(LEFT_OUT) for letter in letters})
    counted = {letter.block: 0 for letter in letters}
    refused = LandedRows(loader.journal.settings()).refused(table, counted)
    written = [LoaderLetter(letter.block, letter.source.offset) for letter in letters]
    assert [one.text for one in judge.judge(written, refused, lambda _: {})] == []
    assert {one.state for one in refused.values()} == {plan.DEAD}


def are_dead(loader: Unsparked, ledger: Ledger, client: Client, table: str) -> None:
    are_letters_once(loader, client, table)
    assert ledger.counts() == [(table, plan.DEAD, 1, 2), (table, plan.LOADED, 2, 198)]
    assert ledger.waiting() == []


def batches(loader: Unsparked) -> None:
    """All that are due, and what stands aside waits."""
    run = Run(loader.journal.settings())
    while run.batch():
        pass
    run.close()


def is_left_out(loader: Unsparked, table: str) -> None:
    """What makes up a block of its own, and waits in the ledger."""
    with contextlib.closing(Worker(loader.journal.settings(), isolates=True)) as worker:
        (one,) = worker.load([sealed(loader, table)])
    assert (one.outcome, one.left_out) == (plan.LOADED, 2), one.reason
    batches(loader)


def is_left_out_at_a_start(loader: Unsparked, table: str) -> None:
    """And the letters of until then were looked at, so that the ledger says how far that was."""
    is_left_out(loader, table)
    Run(loader.journal.settings()).close()


def is_unread_at_a_start(loader: Unsparked, table: str) -> None:
    """In a pod: the ledger says of it that it may lack its entries, and has them later."""
    sealed(loader, table)
    shutil.rmtree(loader.journal.directory / "checkpoint")
    Run(loader.journal.settings()).close()


@pytest.mark.parametrize(
    ("then", "checkpoint"),
    [
        (None, False),
        (is_left_out, True),
        pytest.param(is_unread_at_a_start, False, marks=pytest.mark.long),
        *(
            pytest.param(then, checkpoint, marks=pytest.mark.long)
            for then, checkpoint in product(
                (None, sealed, is_left_out, is_left_out_at_a_start), (True, False)
            )
            if (then, checkpoint) not in {(None, False), (is_left_out, True)}
        ),
    ],
)
def test_a_backup_from_before_the_letters(
    loader: Unsparked,
    ledger: Ledger,
    client: Client,
    table: str,
    then: object,
    *,
    checkpoint: bool,
) -> None:
    """From before the block, or from when it, or what was left out of it, waited."""
    if callable(then):
        then(loader, table)
    backup = Backup(client, table, ledger_of(loader.journal))
    if then is None:
        sealed(loader, table)
    loader.run()
    are_dead(loader, ledger, client, table)
    backup.restore()
    if not checkpoint:
        shutil.rmtree(loader.journal.directory / "checkpoint")
    loader.run()
    are_dead(loader, ledger, client, table)
    assert loader.run() == []
    are_dead(loader, ledger, client, table)


@pytest.mark.parametrize("then", [None, is_left_out])
def test_a_person_has_it_tried_again_after_the_restore(
    loader: Unsparked, ledger: Ledger, client: Client, table: str, then: object
) -> None:
    """They are dead letters, whatever the table takes by now."""
    if callable(then):
        then(loader, table)
    backup = Backup(client, table, ledger_of(loader.journal))
    block = f"{sealed(loader, table).id}{LEFT_OUT}" if then is None else ""
    loader.run()
    block = block or loader.journal.letters()[0].block
    backup.restore()
    client.command(f"ALTER TABLE {quoted_table(table)} DROP CONSTRAINT small")
    loader.run()
    are_dead(loader, ledger, client, table)
    with contextlib.suppress(Exception):
        list(resolve(loader.journal.settings(), ledger, [block], "retry"))
    are_dead(loader, ledger, client, table)


@pytest.mark.parametrize("corrected", [False, True], ids=["refuses", "takes them now"])
@pytest.mark.parametrize("lost", [False, True], ids=["ledger older", "ledger lost"])
def test_a_table_that_is_newer_than_the_ledger(
    loader: Unsparked,
    ledger: Ledger,
    client: Client,
    table: str,
    *,
    lost: bool,
    corrected: bool,
) -> None:
    """The block's rows are there, but for those of its letters: it is loaded."""
    backup = Backup(client, ledger_of(loader.journal))
    sealed(loader, table)
    loader.run()
    are_dead(loader, ledger, client, table)
    if lost:
        client.command(f"TRUNCATE TABLE {ledger_of(loader.journal)}")
    else:
        backup.restore()
    if corrected:
        client.command(f"ALTER TABLE {quoted_table(table)} DROP CONSTRAINT small")
    assert not [one for one in loader.run(lost=lost) if one.startswith("parked")]
    are_dead(loader, ledger, client, table)


def test_the_table_refuses_more_than_it_did(
    loader: Unsparked, ledger: Ledger, client: Client, table: str
) -> None:
    """What is no letter yet does not pass for one: the block is parked, and a person decides."""
    backup = Backup(client, table, ledger_of(loader.journal))
    block = sealed(loader, table)
    loader.run()
    backup.restore()
    rule = f"ALTER TABLE {quoted_table(table)}"
    client.command(f"{rule} ADD CONSTRAINT more CHECK id != 50")
    (said,) = (one for one in loader.run() if one.startswith("parked"))
    # The server's log may have the INSERT by then, whose parts the restore took.
    assert "are dead letters already" in said or "its parts were dropped" in said
    are_letters_once(loader, client, table, rows=100)
    client.command(f"{rule} DROP CONSTRAINT more")
    ((_, state, why),) = resolve(loader.journal.settings(), ledger, [block.id], "absent")
    assert state == plan.LOADED, why
    are_dead(loader, ledger, client, table)


def test_letters_that_retention_took(
    loader: Unsparked, ledger: Ledger, client: Client, table: str
) -> None:
    """Nobody can tell: it is said, and they are written again."""
    backup = Backup(client, table, ledger_of(loader.journal))
    sealed(loader, table)
    loader.run()
    loader.journal.delete_letters()
    backup.restore()
    assert "retention has deleted dead letters" in "\n".join(loader.run())
    # The server may clear away the empty part that the restore's TRUNCATE left between the refused
    # INSERT and the question what it left: then a person decides.
    for one in ledger.waiting():
        assert "were dropped, detached or replaced since" in one.reason
        ((_, state, why),) = resolve(loader.journal.settings(), ledger, [one.block.id], "absent")
        assert state == plan.LOADED, why
    assert ledger.waiting() == []
    assert copies(client, table) == (198, 198)


def test_a_start_reads_no_letter_twice(
    loader: Unsparked,
    ledger: Ledger,
    client: Client,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long a block waits; what came since is read, and where nothing came none is noted."""
    read: list[int] = []

    def counted(*given: Any) -> Iterator[Message]:
        for message in records(*given):
            read.append(message.offset() or 0)
            yield message

    monkeypatch.setattr(past_letters, "records", counted)
    monkeypatch.setattr(past_letters, "_MANY", 2)
    is_left_out(loader, table)
    others_letters(loader.journal, 3)
    assert "looking at 4 dead letters" in "\n".join(started(loader.journal))  # and the marker
    assert read == [0, 1, 2]
    assert ledger.waiting() != []
    assert started(loader.journal) == []
    assert read == [0, 1, 2]
    others_letters(loader.journal, 1)
    assert started(loader.journal) == []
    assert read == [0, 1, 2, 4]
    noted = f"SELECT attempt FROM {ledger.name} WHERE block LIKE '%#letters:0' ORDER BY attempt"
    assert client.query(noted).result_rows == [(4,), (6,)]


def test_an_open_transaction_of_another_holds_up_no_block(
    loader: Unsparked,
    ledger: Ledger,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As of a relay that was killed in the midst of one; when it has ended, letters are read."""
    is_left_out(loader, table)
    looked = ledger.noted().letters
    with another_producer(loader.journal) as producer:
        producer.begin_transaction()
        producer.produce(names.dead_topic(loader.journal.app), "x", partition=0)
        producer.flush()
        with monkeypatch.context() as patch:
            patch.setattr(partition_reader, "_STABLE_SECONDS", 0.1)
            patch.setattr(past_letters, "_UNSURE_SECONDS", 0.1)
            said = started(loader.journal)
        assert "has an open transaction" in said[-1]
        assert "the next start looks" in said[-1]
        assert ledger.noted().letters == looked
        producer.commit_transaction()
    assert started(loader.journal) == []
    assert [*ledger.noted().letters.values()] == [2]


@contextlib.contextmanager
def another_producer(journal: Journal) -> Iterator[Producer]:
    bootstrap = journal.settings().kafka.bootstrap
    made = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{journal.app}-other"})
    made.init_transactions()
    yield made
    made.flush()


def others_letters(journal: Journal, count: int) -> None:
    with journal.transaction():
        for _ in range(count):
            journal.producer.produce(names.dead_topic(journal.app), "x", partition=0)
    admin = AdminClient({"bootstrap.servers": journal.settings().kafka.bootstrap})
    place = TopicPartition(names.dead_topic(journal.app), 0)
    wait_until(lambda: is_stable(admin, place), "the marker")


def started(journal: Journal) -> list[str]:
    """What a loader says that only starts."""
    run = Run(journal.settings())
    run.close()
    return run.said
