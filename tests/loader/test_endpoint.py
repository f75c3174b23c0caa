"""`loader run --http`: what the driver serves while its workers work; and its log as JSON."""

from __future__ import annotations

import json
import signal
import subprocess
import threading

import pytest
from clickhouse_connect.driver.client import Client

from loader.journal import startup
from loader.metrics.definitions import CURRENT
from loader.metrics.ledger_watch import LedgerLook, LedgerWatch
from tests.broker.pipeline import wait_until
from tests.docs.process_metrics import PROCESS
from tests.loader.blocks import DEADLINE, Journal, batch
from tests.loader.test_work import copies, make
from tests.metrics.asking import address_in, got, values

PROCESS_NAMES = [one.name for one in PROCESS]


@pytest.mark.timeout(3 * DEADLINE)
def test_a_loader_serves_metrics_and_health_and_logs_json(
    journal: Journal, client: Client, database: str
) -> None:
    """Blocks, rows and INSERTs come back from the workers; Spark's listener and a look at ledger
    and journal add theirs. Each line of the log is one object, once Spark runs."""
    table = make(client, f"{database}.t", stamped=True)
    journal.seal(table, *(batch(i * 100, 100) for i in range(3)))
    journal.seal(f"{table}_missing", batch(0, 5))
    process = journal.start("run", "--http", "127.0.0.1:0", "--log-format", "json")
    log: list[str] = []
    reading = threading.Thread(target=_read, args=(process, log))
    reading.start()
    try:
        wait_until(lambda: address_in("".join(log)) is not None, "the address", DEADLINE)
        address = address_in("".join(log)) or ""
        assert got(address, "/healthz")[0] == 200
        wait_until(lambda: _settled(address), "the blocks", DEADLINE)
        wait_until(lambda: got(address, "/readyz")[0] == 200, "readiness", DEADLINE)
        wait_until(
            lambda: values(address)["loader_spark_triggers_total"] >= 1, "Spark's word", DEADLINE
        )
        found = values(address)
        assert copies(client, table) == (300, 300)
        assert found["loader_rows_loaded_total"] == 300
        # The table's blocks are in one task, and go together.
        assert found["loader_inserts_total"] == found["loader_insert_seconds_count"] == 1
        for name in ("loader_queryable_seconds", "loader_sealed_to_queryable_seconds"):
            assert found[f"{name}_count"] == 3
        assert found["loader_insert_seconds_sum"] > 0
        # What the ledger says of tables and partitions comes with the second look.
        steady = [one.name for one in CURRENT if not {"table", "partition"} & {*one.labels}]
        assert [name for name in (*steady, *PROCESS_NAMES) if name not in found] == []
    finally:
        process.send_signal(signal.SIGTERM)
        reading.join(DEADLINE)
        process.kill()
        process.wait()
    assert process.returncode == 0, "".join(log)
    # Java and Spark print some lines by themselves before they begin.
    log = log[next(at for at, line in enumerate(log) if '"message": "loading ' in line) :]
    lines = [json.loads(line) for line in log]
    assert [one["first"] for one in lines if "first" in one] == [
        [f"{journal.app}:{table}_missing:0:0:0"]
    ]
    assert "Traceback" not in "".join(log)
    look = looked(journal)
    assert look.failed == ""
    assert look.counts == [(table, "loaded", 3, 300), (f"{table}_missing", "aside", 1, 5)]
    assert 0 < look.positions[0] <= look.ends[0]
    assert look.blocks == {}
    journal.seal(table, batch(900, 5))
    assert looked(journal).blocks == {0: 1}


def looked(journal: Journal) -> LedgerLook:
    """The first look of another one."""
    settings = journal.settings()
    looking = LedgerWatch(startup.start(settings, startup.ledger_of(settings)))
    try:
        wait_until(lambda: looking.latest is not None, "a look")
    finally:
        looking.close()
    assert looking.latest is not None
    return looking.latest


def _settled(address: str) -> bool:
    found = values(address)
    loaded, aside = found["loader_blocks_loaded_total"], found["loader_blocks_aside_total"]
    return (loaded, aside) == (3, 1)


def _read(process: subprocess.Popen[str], log: list[str]) -> None:
    assert process.stderr is not None
    log.extend(iter(process.stderr.readline, ""))
