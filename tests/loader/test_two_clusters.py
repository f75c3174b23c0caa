"""Two pipelines in one file: each with a Kafka of its own, both into the same table."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from clickhouse_connect.driver.client import Client
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from relay.config.server_settings import ClickHouse
from relay.dev import broker, layout
from relay.dev.clickhouse import toml
from tests.broker.pipeline import create_topics, row_batch, wait_until
from tests.loader.blocks import DEADLINE

TOPIC = "rows"

pytestmark = [pytest.mark.timeout(5 * DEADLINE), pytest.mark.long]


@pytest.fixture(scope="module")
def east(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a broker that ran, and does not run now."""
    directory = tmp_path_factory.mktemp("east")
    plan, _ = layout.decide(directory, 1, 0, 0)
    layout.write(directory, plan)
    try:
        broker.start(directory, 0)
        create(plan.bootstrap, TOPIC)
        broker.stop(directory, 0)
        yield directory
    finally:
        broker.kill(directory, 0)


def create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    create_topics(admin, NewTopic(topic, 1, 1))


def send(bootstrap: str, topic: str, table: str, ids: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    producer.produce(topic, row_batch(ids), headers=[("table", table.encode())])
    assert producer.flush(60) == 0


@contextlib.contextmanager
def program(name: str, log: Path, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """`relay` or `loader`; with all that it has started it is gone afterwards."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [Path(sys.executable).parent / name, *map(str, arguments)],
            stdout=output,
            stderr=output,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            family = psutil.Process(process.pid).children(recursive=True)
            for member in (process, *family):
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()
            process.wait(30)


def test_one_cluster_is_away_while_the_other_flows(
    bootstrap: str,
    clickhouse: ClickHouse,
    app: str,
    database: str,
    client: Client,
    east: Path,
    tmp_path: Path,
) -> None:
    """West's rows arrive though east's broker is down from the beginning; when it is back, east's
    arrive, too, with nobody's help; each once. The relay of the east has ended meanwhile, and
    was started again."""
    table, topic = f"{database}.t", f"{app}.rows"
    client.command(
        f"CREATE TABLE {table} (id Int64, v String, _block String) ENGINE MergeTree ORDER BY id"
    )
    plan = layout.read(east)
    assert plan is not None
    config = tmp_path / "relay.toml"
    config.write_text(
        f"""
app = "{app}"
[kafka]
bootstrap = "{bootstrap}"
[source]
topic = "{topic}"
start = "earliest"
[clickhouse]
{toml(clickhouse)}[block]
max_age_seconds = 0.2
[relay]
member = "m"
wait_for_servers_seconds = 0.5
[loader]
database = "ledger_{app}"
checkpoint = "checkpoint"
master = "local[1]"
[pipelines.west]
[pipelines.east]
kafka.bootstrap = "{plan.bootstrap}"
source.topic = "{TOPIC}"
""",
        encoding="utf-8",
    )
    create(bootstrap, topic)
    logs = {name: tmp_path / f"{name}.log" for name in ("relay", "loader")}
    with (
        program("relay", logs["relay"], "run", config) as relay,
        program("loader", logs["loader"], "run", config) as loader,
    ):

        def contents(rows: dict[str, range]) -> bool:
            for process in (relay, loader):
                assert process.poll() is None, {n: log.read_text() for n, log in logs.items()}
            found = client.query(f"SELECT id, v, splitByChar(':', _block)[1] FROM {table}")
            wanted = [(i, f"v{i}", f"{app}-{name}") for name, ids in rows.items() for i in ids]
            return sorted(found.result_rows) == sorted(wanted)

        send(bootstrap, topic, table, range(100))
        wait_until(lambda: contents({"west": range(100)}), "west's rows", DEADLINE)
        wait_until(
            lambda: "starting it again" in logs["relay"].read_text(),
            "east's relay to end",
            DEADLINE,
        )
        broker.start(east, 0)
        send(plan.bootstrap, TOPIC, table, range(100, 200))
        send(bootstrap, topic, table, range(200, 300))
        both = {"west": range(100), "east": range(100, 200)}
        wait_until(
            lambda: contents({**both, "west": [*range(100), *range(200, 300)]}),  # type: ignore[dict-item]
            "both sides' rows",
            DEADLINE,
        )
        for process in (relay, loader):
            process.terminate()
        wait_until(lambda: None not in (relay.poll(), loader.poll()), "the end of both", DEADLINE)
    said = {name: log.read_text() for name, log in logs.items()}
    assert (relay.returncode, loader.returncode) == (0, 0), said
    # Not of the loader: Spark prints one where its Python starts too slowly, and tries again.
    assert "Traceback" not in said["relay"], said
    assert "pipeline=west" in said["relay"]
    assert "INFO loader west: batch" in said["loader"]
    client.command(f"DROP DATABASE ledger_{app}")
