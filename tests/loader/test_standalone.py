"""The loader on a Spark standalone cluster: an executor dies, and the driver, in the midst."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil
import pytest
from clickhouse_connect.driver.client import Client

from loader.clickhouse.ledger import Ledger
from tests.broker.pipeline import wait_until
from tests.loader.blocks import DEADLINE, Journal, batch
from tests.loader.standalone import Cluster, cluster, runs
from tests.loader.test_run import loaded
from tests.loader.test_work import copies, make

pytestmark = [pytest.mark.timeout(5 * DEADLINE), pytest.mark.long]
BLOCKS, ROWS = 6, 500


@pytest.fixture
def table(client: Client, database: str) -> str:
    return make(client, f"{database}.stamped", stamped=True)


def seal(journal: Journal, table: str, first: int) -> None:
    journal.seal(table, *(batch(first + i * ROWS, ROWS) for i in range(BLOCKS)))


def inserted(client: Client, table: str, more_than: int, loader: subprocess.Popen[str]) -> None:
    """Wait for rows that came while the gate was closed: the ledger cannot know of them."""

    def there() -> bool:
        assert loader.poll() is None, loader.communicate()
        return copies(client, table)[0] > more_than

    wait_until(there, f"more than {more_than} rows", DEADLINE)


def kill_one(executors: list[psutil.Process]) -> None:
    """SIGKILL for an executor whose Python processes are at work; they end by themselves."""
    busy = next((one for one in executors if one.children()), None)
    assert busy is not None, "no executor has a Python process"
    python = busy.children(recursive=True)
    busy.kill()
    wait_until(lambda: not any(map(runs, [busy, *python])), "the end of its processes", DEADLINE)


def test_an_executor_and_the_driver_die_in_the_midst(
    journal: Journal, ledger: Ledger, client: Client, table: str, tmp_path: Path
) -> None:
    """The loader outlives its executor, its successor goes on: one copy of each row.

    Both are killed while the gate keeps every task between its INSERT and the ledger. The window
    is of one insert: only ledger and block ids stand against doubles.
    """
    gate = tmp_path / "gate"
    gate.touch()
    seal(journal, table, 0)
    with cluster(tmp_path / "cluster") as spark:
        first = start(journal, spark, failpoint=f"after_insert:wait={gate}:every")
        try:
            inserted(client, table, 0, first)
            kill_one(spark.executors())
            gate.unlink()
            loaded(client, table, BLOCKS * ROWS, first)
            done = [(table, "loaded", BLOCKS, BLOCKS * ROWS)]
            wait_until(lambda: ledger.counts() == done, "the ledger", DEADLINE)

            gate.touch()
            seal(journal, table, BLOCKS * ROWS)
            inserted(client, table, BLOCKS * ROWS, first)
        finally:
            first.kill()
            gate.unlink(missing_ok=True)
        wait_until(lambda: not spark.executors(), "the end of its executors", DEADLINE)

        second = start(journal, spark, "--once", cores=1)
        try:
            output, said = second.communicate(timeout=DEADLINE)
        finally:
            second.kill()
        assert second.returncode == 0, output + said
    assert copies(client, table) == (2 * BLOCKS * ROWS, 2 * BLOCKS * ROWS)
    assert ledger.counts() == [(table, "loaded", 2 * BLOCKS, 2 * BLOCKS * ROWS)]
    assert "Traceback" not in said


def start(
    journal: Journal, spark: Cluster, *options: str, failpoint: str = "", cores: int = 2
) -> subprocess.Popen[str]:
    """`loader run` on the cluster."""
    environment = spark.environment(failpoint, cores)
    return journal.start("run", "--master", spark.master, *options, environment=environment)
