"""`relay verify` beside a real relay: silent while all is well, quick when it is not."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from loader import clickhouse
from loader.ledger import Ledger
from loader.work import Worker
from relay.config import load
from tests.broker.conftest import pipeline  # noqa: F401 - a fixture
from tests.broker.pipeline import Pipeline, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from clickhouse_connect.driver.client import Client

RELAY = Path(sys.executable).parent / "relay"


def once(config: Path, *options: str) -> tuple[int, dict[str, Any], list[dict[str, Any]]]:
    """Exit status, totals, anomalies."""
    done = subprocess.run(
        [RELAY, "verify", config, "--once", "--json", *options],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert "Traceback" not in done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, lines[-1], [line["anomaly"] for line in lines[:-1]]


def ran(pipeline: Pipeline) -> Path:  # noqa: F811
    """A relay that is killed, started again, and stopped as asked; its configuration."""
    config = pipeline.config(flush_point_interval_seconds=1.0)
    first = pipeline.start("a", config, failpoint="before_commit:kill:2")
    for start in range(0, 100, 50):
        pipeline.send(range(start, start + 50), partition=start // 50 % 2)
        wait_until(
            lambda: first.poll() is not None or pipeline.rows() == pipeline.sent, "rows or the end"
        )
    wait_until(lambda: first.poll() is not None, "the failpoint")
    second = pipeline.start("a", config)
    pipeline.exactly_once()
    for start in range(100, 300, 50):
        pipeline.send(range(start, start + 50), partition=start // 50 % 2)
    pipeline.exactly_once()
    second.send_signal(signal.SIGTERM)
    assert second.wait(30) == 0
    return config


def write_journal(pipeline: Pipeline, value: bytes) -> None:  # noqa: F811
    """A record that no relay wrote."""
    producer = Producer({"bootstrap.servers": pipeline.bootstrap, "acks": "all"})
    producer.produce(f"{pipeline.app}.journal", value, partition=0)
    assert producer.flush(30) == 0


def move_offset(pipeline: Pipeline) -> None:  # noqa: F811
    """As Kafka's own tool does; refused while the static member's session lasts."""
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    group = f"{pipeline.app}.relay"
    request = ConsumerGroupTopicPartitions(group, [TopicPartition(pipeline.source, 1, 3)])

    def moved() -> bool:
        try:
            answer = admin.alter_consumer_group_offsets([request])[group].result(30)
        except KafkaException:
            return False
        return not any(place.error for place in answer.topic_partitions)

    wait_until(moved, "the group is empty")


def repeat_last_record(pipeline: Pipeline) -> None:  # noqa: F811
    record = pipeline.journal()[0][-1]
    write_journal(pipeline, record.SerializeToString())


def skip_a_record(pipeline: Pipeline) -> None:  # noqa: F811
    record = pipeline.journal()[0][-1]
    record.n += 2
    write_journal(pipeline, record.SerializeToString())


ANOMALIES: list[tuple[Callable[[Pipeline], None], str]] = [
    (repeat_last_record, "backward"),
    (skip_a_record, "gap"),
    (move_offset, "torn"),
]


def test_anomalies_made_by_hand_are_told_within_two_seconds(pipeline: Pipeline) -> None:  # noqa: F811
    """A clean audit; then --follow names each anomaly, and so does --once afterwards."""
    config = ran(pipeline)
    status, totals, anomalies = once(config)
    assert (status, anomalies) == (0, [])
    assert totals["rows"] == 300
    assert totals["tables"] == {pipeline.table: 300}

    log = pipeline.directory / "verify.log"
    with log.open("wb") as output:
        verifier = subprocess.Popen(
            [RELAY, "verify", config, "--follow", "--json"], stdout=output, stderr=output
        )
    pipeline.processes.append(verifier)
    try:
        for number, (cause, kind) in enumerate(ANOMALIES):
            cause(pipeline)
            wait_until(lambda k=kind: f'"kind": "{k}"' in log.read_text(), kind, 30)
            assert log.read_text().count('"anomaly"') >= number + 1
        verifier.send_signal(signal.SIGTERM)
        assert verifier.wait(15) == 1
    finally:
        verifier.kill()
    assert "Traceback" not in log.read_text()
    status, _, anomalies = once(config)
    assert status == 1
    assert {"backward", "gap", "torn"} <= {anomaly["kind"] for anomaly in anomalies}


def test_deep_reads_block_topic_source_and_clickhouse(pipeline: Pipeline, client: Client) -> None:  # noqa: F811
    """Clean after a load; then damage in each place is named."""
    client.command(f"ALTER TABLE {pipeline.table} ADD COLUMN _block String")
    config = ran(pipeline)
    blocks = [
        block for commits in pipeline.journal().values() for c in commits for block in c.blocks
    ]
    settings = load(config)
    connected = clickhouse.connect(settings.clickhouse, 60)
    Ledger(connected, settings.loader.database, pipeline.app).ensure(settings.loader.database)
    connected.close()
    with contextlib.closing(Worker(settings)) as worker:
        assert {done.outcome for done in worker.load(blocks)} == {"loaded"}

    assert once(config, "--deep")[::2] == (0, [])

    first = blocks[0]
    client.command(f"ALTER TABLE {pipeline.table} DELETE WHERE id = 0 SETTINGS mutations_sync = 2")
    columns = f"SELECT * FROM {pipeline.table} WHERE _block = '{blocks[-1].id}' LIMIT 1"
    client.command(f"INSERT INTO {pipeline.table} {columns}")
    producer = Producer({"bootstrap.servers": pipeline.bootstrap, "acks": "all"})
    producer.produce(first.topic, b"x", b"who:wrote:this:0:0", partition=0, headers={"rows": "1"})
    assert producer.flush(30) == 0
    pipeline.send(range(300, 350))
    relay = pipeline.start("a", config)
    pipeline.exactly_once()
    relay.send_signal(signal.SIGTERM)
    assert relay.wait(30) == 0
    status, _, anomalies = once(config, "--deep")
    assert status == 1
    assert sorted(anomaly["kind"] for anomaly in anomalies) == ["gap", "overlap", "torn"]
