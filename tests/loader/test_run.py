"""The whole loader: command, Spark, Kafka, ClickHouse. Each start costs seconds: few of them."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from clickhouse_connect.driver.client import Client
from confluent_kafka.admin import AdminClient

from relay import names
from tests.broker.pipeline import delete_topic, wait_until
from tests.loader.blocks import DEADLINE, Journal, batch
from tests.loader.test_work import copies, make, others_insert

pytestmark = pytest.mark.timeout(5 * DEADLINE)


@pytest.fixture
def tables(client: Client, database: str) -> tuple[str, str]:
    stamped = make(client, f"{database}.stamped", stamped=True)
    return stamped, make(client, f"{database}.bare", stamped=False)


@pytest.mark.long  # 143 s, with Spark; a short campaign kills loaders in each run
def test_killed_between_insert_and_ledger(
    journal: Journal, client: Client, tables: tuple[str, str]
) -> None:
    """Window of 1, other inserts between, checkpoint lost: one copy of every block."""
    stamped, bare = tables
    journal.seal(stamped, *(batch(i * 1000, 1000) for i in range(4)))
    status, said = journal.run("run", "--once", failpoint="after_insert")
    assert status == -signal.SIGKILL, said
    assert copies(client, stamped)[0] >= 1000, "the kill came after an insert"
    others_insert(client, stamped)
    shutil.rmtree(journal.directory / "checkpoint")
    journal.seal(bare, batch(0, 500))
    journal.seal(f"{bare}_missing", batch(0, 5))
    for _ in range(2):
        status, said = journal.run("run", "--once")
        assert status == 0, said
        assert "Traceback" not in said
        assert copies(client, stamped) == (4000, 4000)
        assert copies(client, bare) == (500, 500)
        shutil.rmtree(journal.directory / "checkpoint")
    rows = json.loads(journal.run("status", "--json")[1])["tables"]
    assert {(row["table"], row["loaded_blocks"], row["aside_blocks"]) for row in rows} == {
        (stamped, 4, 0),
        (bare, 1, 0),
        (f"{bare}_missing", 0, 1),
    }
    listed = journal.run("parked ls")[1]
    assert "set aside" in listed
    assert "there is no table" in listed


def kill_workers(loader: int, gate: Path) -> None:
    """SIGKILL for Spark's Python workers while one stands at the gate; the loader lives on."""
    wait_until(gate.with_name("gate.reached").exists, "an insert", DEADLINE)
    tasks = [p for p in psutil.Process(loader).children(recursive=True) if is_task(p)]
    workers = [process for process in tasks if process.parent() in tasks]
    assert workers
    for worker in workers:
        worker.kill()
    gate.unlink()


def is_task(process: psutil.Process) -> bool:
    """Of loader.spark.workers: the daemon, or a worker that it has forked."""
    try:
        return "loader.spark.workers" in process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False


def loaded(client: Client, table: str, rows: int, process: subprocess.Popen[str]) -> None:
    """Wait until so many rows are there, each once."""

    def there() -> bool:
        assert process.poll() is None, process.communicate()
        return copies(client, table) == (rows, rows)

    wait_until(there, f"{rows} rows", DEADLINE)


def test_runs_until_told_to_stop(journal: Journal, client: Client, tables: tuple[str, str]) -> None:
    """Blocks are loaded as they are sealed; SIGTERM ends with 0; another journal ends with 6.

    A worker process killed between insert and ledger, alone, costs its task a second try.
    """
    table, _ = tables
    gate = journal.directory / "gate"
    gate.touch()
    process = journal.start("run", failpoint=f"after_insert:wait={gate}")
    try:
        journal.seal(table, batch(1000, 100))
        kill_workers(process.pid, gate)
        loaded(client, table, 100, process)
        for i in range(3):
            journal.seal(table, batch(i * 100, 100))
            loaded(client, table, (i + 2) * 100, process)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert "Traceback" not in said
    assert "Exception in thread" not in said
    assert "| all: 4 blocks, 400 rows\n" in said
    (row,) = json.loads(journal.run("status", "--json")[1])["positions"]
    assert 0 < row["checkpoint"] <= row["ledger"] <= row["end"]

    topic = names.journal_topic(journal.app)
    admin = AdminClient({"bootstrap.servers": journal.settings().kafka.bootstrap})
    delete_topic(admin, topic)
    journal.forget(topic)
    journal.topic(topic)
    status, said = journal.run("run", "--once")
    assert status == 6, said
    assert "created again" in said
    assert "Traceback" not in said

    # The checkpoint alone must say it too; the error then comes out of Spark's own process.
    client.command(f"DROP DATABASE {journal.settings().loader.database}")
    status, said = journal.run("run", "--once")
    assert status == 6, said
    assert "loader: the checkpoint belongs to journal" in said


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_a_run_left_is_gone_on_with_once(
    journal: Journal, client: Client, tables: tuple[str, str], number: signal.Signals
) -> None:
    """The checkpoint, written beside the micro-batches, is one that any start can read."""
    table, _ = tables
    process = journal.start("run")
    try:
        for i in range(6):
            journal.seal(table, batch(i * 100, 100))
            loaded(client, table, (i + 1) * 100, process)
    finally:
        process.send_signal(number)
        _, said = process.communicate(timeout=DEADLINE)
    assert number == signal.SIGKILL or "Exception in thread" not in said
    journal.seal(table, batch(600, 100))
    status, said = journal.run("run", "--once")
    assert status == 0, said
    assert copies(client, table) == (700, 700)


def test_without_clickhouse_it_waits_and_says_so(journal: Journal) -> None:
    """Waiting has a line per try; over the limit it ends with 4 and the next step."""
    journal.without_clickhouse()
    journal.patience = 1.0
    status, said = journal.run("run", "--once")
    assert status == 4, said
    assert said.count("waiting, next try") >= 2
    assert "next: Start ClickHouse" in said
    assert "Traceback" not in said
    assert "Driver Exception" not in said
