"""The whole loader: command, Spark, Kafka, ClickHouse. Each start costs seconds: few of them."""

from __future__ import annotations

import json
import shutil
import signal
import time

import pytest
from clickhouse_connect.driver.client import Client
from confluent_kafka.admin import AdminClient

from relay import names
from tests.loader.blocks import DEADLINE, Journal, batch
from tests.loader.test_work import copies, make, others_insert

pytestmark = pytest.mark.timeout(5 * DEADLINE)


@pytest.fixture
def tables(client: Client, database: str) -> tuple[str, str]:
    stamped = make(client, f"{database}.stamped", stamped=True)
    return stamped, make(client, f"{database}.bare", stamped=False)


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
    assert {(row["table"], row["loaded_blocks"], row["parked_blocks"]) for row in rows} == {
        (stamped, 4, 0),
        (bare, 1, 0),
        (f"{bare}_missing", 0, 1),
    }
    assert "there is no table" in journal.run("parked ls")[1]


def test_runs_until_told_to_stop(journal: Journal, client: Client, tables: tuple[str, str]) -> None:
    """Blocks are loaded as they are sealed; SIGTERM ends with 0; another journal ends with 6."""
    table, _ = tables
    process = journal.start("run")
    try:
        for i in range(3):
            journal.seal(table, batch(i * 100, 100))
            deadline = time.monotonic() + DEADLINE
            while copies(client, table) != ((i + 1) * 100, (i + 1) * 100):
                assert time.monotonic() < deadline, "not loaded"
                assert process.poll() is None, process.communicate()
                time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert "Traceback" not in said
    assert "3 blocks, 300 rows, 0 parked" in said
    (row,) = json.loads(journal.run("status", "--json")[1])["positions"]
    assert 0 < row["ledger"] == row["checkpoint"] <= row["end"]

    topic = names.journal_topic(journal.app)
    admin = AdminClient({"bootstrap.servers": journal.settings().kafka.bootstrap})
    admin.delete_topics([topic])[topic].result()
    deadline = time.monotonic() + 30
    while topic in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    journal.forget(topic)
    journal.topic(topic)
    status, said = journal.run("run", "--once")
    assert status == 6, said
    assert "made anew" in said
    assert "Traceback" not in said

    # The checkpoint alone must say it too; the error then comes out of Spark's own process.
    client.command(f"DROP DATABASE {journal.settings().loader.database}")
    status, said = journal.run("run", "--once")
    assert status == 6, said
    assert "loader: the checkpoint belongs to journal" in said


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
