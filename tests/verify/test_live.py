"""`relay verify` beside a real relay: silent while all is well, quick when it is not."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition

from loader.blocks.worker import Worker
from loader.clickhouse import client as clickhouse_client
from loader.clickhouse.ledger import Ledger
from relay.blocks import placement
from relay.config.settings_file import load
from relay.records_pb2 import Commit
from tests.broker.conftest import pipeline  # noqa: F401 - a fixture
from tests.broker.pipeline import WAIT_SECONDS, Pipeline, wait_until
from tests.verify import grouptool
from tests.verify.receiver import SECRET, Receiver

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

RELAY = Path(sys.executable).parent / "relay"


def once(config: Path, *options: str) -> tuple[int, dict[str, Any], list[dict[str, Any]]]:
    """Exit status, totals, anomalies."""
    done = subprocess.run(
        [RELAY, "verify", config, "--once", "--json", *options],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert "Traceback" not in done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, lines[-1], [line["anomaly"] for line in lines if "anomaly" in line]


def spoken(config: Path, *options: str) -> tuple[int, str]:
    """Exit status, and what people read."""
    command = [RELAY, "verify", config, "--once", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    return done.returncode, " ".join((done.stderr + done.stdout).split())


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
    assert pipeline.end_of(second) == 0
    pipeline.await_markers()
    return config


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def write_journal(pipeline: Pipeline, record: Commit) -> int:  # noqa: F811
    """A record that no relay wrote; when."""
    producer = Producer({"bootstrap.servers": pipeline.bootstrap, "acks": "all"})
    at_ms = now_ms()
    producer.produce(f"{pipeline.app}.journal", record.SerializeToString(), partition=0)
    assert producer.flush(30) == 0
    return at_ms


def move_offset(pipeline: Pipeline, attempt: int) -> int:  # noqa: F811
    """By Kafka's own tool: of another partition each time, as one that is torn is told once."""
    place = TopicPartition(pipeline.source, 1 - attempt, 3)
    return grouptool.reset(pipeline.bootstrap, f"{pipeline.app}.relay", place)


def repeat_last_record(pipeline: Pipeline, _attempt: int) -> int:  # noqa: F811
    return write_journal(pipeline, pipeline.journal()[0][-1])


def skip_a_record(pipeline: Pipeline, _attempt: int) -> int:  # noqa: F811
    record = pipeline.journal()[0][-1]
    record.n += 2
    return write_journal(pipeline, record)


Cause = Callable[[Pipeline, int], int]
LIVE: list[tuple[Cause, str]] = [(repeat_last_record, "backward"), (skip_a_record, "gap")]
"""While the relay runs."""
PROMISED_MS = 2_000
ATTEMPTS = 5
"""A machine that is busy with other tests may be late once; what looks too seldom always is."""


class Follower:
    """`relay verify --follow` as a process, with page and webhook."""

    def __init__(self, pipeline: Pipeline, config: Path, webhook: str) -> None:  # noqa: F811
        self._log = pipeline.directory / "verify.log"
        self._pipeline = pipeline
        command = [RELAY, "verify", config, "--follow", "--json", "--http", "127.0.0.1:0"]
        environment = {**os.environ, "RELAY_VERIFY_WEBHOOK": webhook}
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        pipeline.processes.append(self.process)
        wait_until(lambda: "page=http://" in self.log(), "the page's address")
        self._address = re.findall(r"page=http://(\S+?)/", self.log())[0]

    def log(self) -> str:
        return self._log.read_text()

    def told(self, kind: str, since_ms: int) -> list[int]:
        """When anomalies of the kind were told since then."""
        whole = self.log().split("\n")[:-1]
        lines = [line for line in whole if line.startswith('{"anomaly"')]
        found = [json.loads(line) for line in lines]
        return [
            one["at_ms"]
            for one in found
            if one["anomaly"]["kind"] == kind and one["at_ms"] >= since_ms
        ]

    def asked(self, path: str) -> str:
        connection = http.client.HTTPConnection(self._address, timeout=60)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            text = answer.read().decode()
            assert answer.status == 200, text
            return text
        finally:
            connection.close()

    def metric(self, name: str) -> float:
        """0 where it is not there yet."""
        text = self.asked("/metrics").replace(f'app="{self._pipeline.app}",', "")
        text = text.replace(f'{{app="{self._pipeline.app}"}}', "")
        found = re.findall(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        return float(found[0]) if found else 0.0

    def tells(self, cause: Cause, kind: str, attempts: int = ATTEMPTS) -> None:
        """Each time, and in the time promised at least once."""
        late = []
        for attempt in range(attempts):
            at_ms = cause(self._pipeline, attempt)
            wait_until(lambda since=at_ms: self.told(kind, since) != [], kind, 30)
            late.append(self.told(kind, at_ms)[0] - at_ms)
            if late[-1] < PROMISED_MS:
                print(f"{kind} told after {late} ms")
                return
        pytest.fail(f"{kind} told after {late} ms")


@pytest.mark.long  # 139 s
def test_anomalies_made_by_hand_are_told_within_two_seconds(pipeline: Pipeline) -> None:  # noqa: F811
    """A clean audit; then --follow names each anomaly beside a live relay, on its page, its
    metrics and its webhook too; and so does --once afterwards."""
    config = ran(pipeline)
    status, totals, anomalies = once(config)
    assert (status, anomalies) == (0, [])
    assert totals["rows"] == 300
    assert totals["tables"] == {pipeline.table: 300}

    relay = pipeline.start("a", config)
    with contextlib.closing(Receiver(200)) as receiver:
        follower = Follower(pipeline, config, receiver.url)
        wait_until(lambda: follower.metric("verifier_rows_total") == 300, "what was there")
        flows = 'verifier_audited_n{partition="1"}'
        before = follower.metric(flows)
        pipeline.send(range(300, 350), partition=1)
        pipeline.until(lambda: follower.metric(flows) > before, "rows that flow")
        for cause, kind in LIVE:
            follower.tells(cause, kind)
        before = follower.metric(flows)
        pipeline.send(range(350, 400), partition=1)
        # A relay that takes over meanwhile stops at what it finds; any other goes on.
        wait_until(lambda: follower.metric(flows) > before or relay.poll() == 6, "rows that flow")
        relay.send_signal(signal.SIGTERM)
        assert relay.wait(30) in {0, 6}
        follower.tells(move_offset, "torn", attempts=2)
        assert "torn" in {anomaly["kind"] for anomaly in once(config)[2]}

        torn = follower.metric('verifier_anomalies_total{kind="torn"}')
        assert torn == follower.metric('verifier_anomalies_open{kind="torn"}') >= 1
        accept = ["accept", config, "--partition", "1", "--run", "--why", "moved by a test"]
        subprocess.run([RELAY, *accept], check=True, timeout=240)
        settled = 'verifier_anomalies_open{kind="torn"}'
        wait_until(lambda: follower.metric(settled) < torn, "what was accepted is settled")
        assert follower.metric('verifier_anomalies_total{kind="torn"}') == torn
        assert follower.metric('verifier_anomalies_open{kind="gap"}') >= 1, "that stays"
        wait_until(lambda: json.loads(follower.asked("/data"))["status"], "the first screen")
        data = json.loads(follower.asked("/data"))
        assert [row["partition"] for row in data["status"]["partitions"]] == [0, 1]
        block = json.loads(follower.asked(f"/block?id={data['blocks'][-1]['id']}"))
        assert (block["state"], block["chunks"]["problems"]) == ("sealed", [])
        assert {"backward", "gap", "torn"} <= {one["kind"] for one in data["verifier"]["told"]}
        assert json.loads(follower.asked("/healthz"))["ok"]
        follower.process.send_signal(signal.SIGTERM)
        assert follower.process.wait(WAIT_SECONDS) == 1
        assert {"backward", "gap", "torn"} <= {one["kind"] for one in receiver.taken}
    assert "Traceback" not in follower.log()
    assert SECRET not in follower.log()
    status, _, anomalies = once(config)
    assert status == 1
    assert {"backward", "gap"} <= {anomaly["kind"] for anomaly in anomalies}, "torn was accepted"


def test_it_waits_for_the_first_relay(pipeline: Pipeline) -> None:  # noqa: F811
    """As where all programs of an app start together: it ended with status 2 before."""
    config = pipeline.config(flush_point_interval_seconds=1.0)
    with contextlib.closing(Receiver(200)) as receiver:
        follower = Follower(pipeline, config, receiver.url)
        waits = "the verifier waits for the app's first relay"
        wait_until(lambda: waits in follower.log(), "that it waits")
        assert f"there is no topic {pipeline.app}.journal" in follower.log()
        assert follower.metric("verifier_round_timestamp_seconds") > time.time() - 300
        pipeline.start("a", config)
        pipeline.send(range(50))
        wait_until(lambda: follower.metric("verifier_rows_total") == 50, "its rows")
        follower.process.send_signal(signal.SIGTERM)
        assert follower.process.wait(WAIT_SECONDS) == 0, follower.log()


def test_deep_reads_block_topic_source_and_clickhouse(pipeline: Pipeline, client: Client) -> None:  # noqa: F811
    """Clean after a load; then damage in each place is named."""
    client.command(f"ALTER TABLE {pipeline.table} ADD COLUMN _block String")
    config = ran(pipeline)
    blocks = [
        block for commits in pipeline.journal().values() for c in commits for block in c.blocks
    ]
    settings = load(config)
    connected = clickhouse_client.connect(settings.clickhouse, 60)
    Ledger(connected, settings.loader.database, pipeline.app).ensure()
    connected.close()
    with contextlib.closing(Worker(settings)) as worker:
        assert {done.outcome for done in worker.load(blocks)} == {"loaded"}

    assert once(config, "--deep")[::2] == (0, [])

    first, rows = blocks[0], {block.id: block.rows for block in blocks}
    client.command(f"ALTER TABLE {pipeline.table} DELETE WHERE id = 0 SETTINGS mutations_sync = 2")
    status, said = spoken(config, "--deep")
    assert status == 0, said
    assert f"not judged: {pipeline.table}: rows were removed at" in said
    # Of the mutation or of the whole ALTER, whichever was recorded later.
    assert "DELETE WHERE id = 0" in said
    columns = f"SELECT * FROM {pipeline.table} WHERE _block = '{blocks[-1].id}' LIMIT 1"
    client.command(f"INSERT INTO {pipeline.table} {columns}")
    producer = Producer({"bootstrap.servers": pipeline.bootstrap, "acks": "all"})
    producer.produce(first.topic, b"x", b"who:wrote:this:0:0", partition=0, headers={"rows": "1"})
    assert producer.flush(30) == 0
    pipeline.send(range(300, 350))
    relay = pipeline.start("a", config)
    pipeline.exactly_once()
    # A ledger that has a block as loaded, of which the table has nothing.
    new = [b for found in pipeline.journal().values() for c in found for b in c.blocks]
    forged = next(block for block in new if block.id not in rows)
    client.insert(
        f"{settings.loader.database}.ledger",
        [
            [pipeline.app, forged.table, forged.id, state, 1, "x"]
            for state in ("prepared", "loaded")
        ],
        column_names=["app", "table", "block", "state", "attempt", "claim"],
    )
    status, _, anomalies = once(config, "--deep")
    relay.send_signal(signal.SIGTERM)
    assert pipeline.end_of(relay) == 0
    assert status == 1
    # No loader runs: on a slow machine the last rows wait long enough to be told of as well.
    kinds = [anomaly["kind"] for anomaly in anomalies if anomaly["kind"] != "late"]
    assert sorted(kinds) == ["gap", "overlap", "torn"]


def test_a_program_that_writes_into_the_apps_topics(pipeline: Pipeline) -> None:  # noqa: F811
    """JSON in the journal, a word for a number in a block topic: named, and the rest is judged."""
    config, journal = ran(pipeline), f"{pipeline.app}.journal"
    first = next(block for some in pipeline.journal().values() for c in some for block in c.blocks)
    producer = Producer({"bootstrap.servers": pipeline.bootstrap, "acks": "all"})
    at = placement.place(first)[1]
    producer.produce(first.topic, b"x", b"who:wrote:this:0:0", partition=at, headers={"rows": "?"})
    assert producer.flush(30) == 0
    relay = pipeline.start("a", config)
    for start in (300, 350):
        pipeline.send(range(start, start + 50), partition=start // 50 % 2)
    pipeline.exactly_once()
    relay.send_signal(signal.SIGTERM)
    assert pipeline.end_of(relay) == 0
    producer.produce(journal, b'{"a":1}', partition=0)
    assert producer.flush(30) == 0
    for options, expected in (((), ["foreign"]), (("--deep",), ["foreign", "torn"])):
        status, _, anomalies = once(config, *options)
        assert status == 1
        assert sorted({one["kind"] for one in anomalies} - {"late"}) == expected
    status_of = subprocess.run(
        [RELAY, "status", config, "--json"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert status_of.returncode == 0, status_of.stderr
    assert "is no journal record" in status_of.stdout
    tail = subprocess.run(
        [RELAY, "journal", "tail", config], capture_output=True, text=True, timeout=240, check=False
    )
    said = f"{journal}[0] has a message at offset"
    assert (tail.returncode, said in tail.stderr) == (6, True), tail.stderr
    relay = pipeline.start("a", config)
    assert pipeline.end_of(relay) == 6
    assert said in pipeline.log(relay)
