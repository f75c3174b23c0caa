"""The source in one Kafka, all that relays write in another: every command over both."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client

from relay.config.server_settings import ClickHouse
from relay.dev import broker, layout
from relay.dev.clickhouse import toml
from tests.broker.pipeline import wait_until
from tests.loader.blocks import DEADLINE
from tests.loader.test_two_clusters import TOPIC, program, send
from tests.loader.test_two_clusters import east as east  # noqa: PLC0414 - a fixture

pytestmark = [pytest.mark.timeout(5 * DEADLINE), pytest.mark.long]


def relay(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "relay"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


def test_rows_go_across_though_each_broker_is_away_for_a_time(
    bootstrap: str,
    clickhouse: ClickHouse,
    app: str,
    database: str,
    client: Client,
    east: Path,
    tmp_path: Path,
) -> None:
    """The source's broker is away at first and in between; verify, status and doctor ask both."""
    plan = layout.read(east)
    assert plan is not None
    table = f"{database}.t"
    client.command(
        f"CREATE TABLE {table} (id Int64, v String, _block String) ENGINE MergeTree ORDER BY id"
    )
    config = tmp_path / "relay.toml"
    config.write_text(
        f"""
app = "{app}"
[kafka]
bootstrap = "{bootstrap}"
[source]
topic = "{TOPIC}"
start = "earliest"
[source.kafka]
bootstrap = "{plan.bootstrap}"
[clickhouse]
{toml(clickhouse)}[block]
max_age_seconds = 0.2
[relay]
member = "m"
[loader]
database = "ledger_{app}"
checkpoint = "checkpoint"
master = "local[1]"
""",
        encoding="utf-8",
    )
    logs = {name: tmp_path / f"{name}.log" for name in ("relay", "loader")}
    with (
        program("relay", logs["relay"], "run", config) as running,
        program("loader", logs["loader"], "run", config) as loader,
    ):

        def there(ids: range) -> bool:
            for process in (running, loader):
                assert process.poll() is None, {n: log.read_text() for n, log in logs.items()}
            found = client.query(f"SELECT id, v FROM {table}").result_rows
            return sorted(found) == [(i, f"v{i}") for i in ids]

        wait_until(lambda: "waiting" in logs["relay"].read_text(), "the wait", DEADLINE)
        broker.start(east, 0)
        send(plan.bootstrap, TOPIC, table, range(100))
        wait_until(lambda: there(range(100)), "the first rows", DEADLINE)
        broker.kill(east, 0)
        broker.start(east, 0)
        send(plan.bootstrap, TOPIC, table, range(100, 200))
        wait_until(lambda: there(range(200)), "all rows", DEADLINE)

        verified = relay("verify", config, "--deep", "--json")
        assert verified.returncode == 0, verified.stdout + verified.stderr
        status = relay("status", config, "--json")
        assert status.returncode == 0, status.stderr
        shown = json.loads(status.stdout)
        assert shown["anomalies"] == 0
        (partition,) = shown["partitions"]
        assert (partition["member"], partition["lag"]) == ("m", 0)
        doctor = relay("doctor", config, "--json")
        kinds = {json.loads(line).get("code", "") for line in doctor.stdout.splitlines()}
        assert not kinds & {"source-missing", "right-group", "kafka-away", "unasked"}, doctor.stdout
        grants = relay("doctor", config, "--grants").stdout.splitlines()
        of_source = [line for line in grants if plan.bootstrap in line]
        assert of_source
        assert all(f"{app}.relay" in line or TOPIC in line for line in of_source), of_source
        refused = relay("rewind", config, "--all", "--to-offset", "0", "--run")
        assert refused.returncode == 2
        assert "source.kafka names another cluster" in refused.stderr
    client.command(f"DROP DATABASE IF EXISTS ledger_{app}")
