"""A source log that lost its end, as the only copy may lose what was not flushed, and grew on."""

from __future__ import annotations

import re
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from relay.dev import broker
from tests.broker.own_broker import bootstrap, own_broker  # noqa: F401 - one is a fixture
from tests.broker.pipeline import row_batch, wait_until
from tests.broker.test_wrong_surroundings_end_with_a_clear_error import stop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clickhouse_connect.driver.client import Client

    from tests.broker.pipeline import Pipeline

RELAY = Path(sys.executable).parent / "relay"
KEPT, READ = 60, 100
"""Messages that the log keeps, of those that were read."""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    """Directory of a broker that the test kills and starts again."""
    with own_broker(tmp_path) as directory:
        yield directory


def test_relays_go_on_with_the_first_new_message(pipeline: Pipeline, own: Path) -> None:
    """The floor is within the log again; the leader epoch tells, and accept names the offset."""
    config = pipeline.config(flush_point_interval_seconds=1.0)
    relay = pipeline.start("a", config)
    pipeline.send(range(KEPT))
    pipeline.send(range(KEPT, READ))
    pipeline.until(lambda: pipeline.floor(0) == READ, "all is read")
    stop(relay)
    lose_end(pipeline, own)
    pipeline.send(range(1000, 1100))

    stops(pipeline, config, "lost its end")
    status, said = person("rewind", config, "--all", "--to-offset", "0")
    assert (status, "has grown again" in said) == (6, True), said
    accepted_and_read_on(pipeline, config)


@pytest.mark.long  # 36 s; tests/core/test_takeover.py decides it
def test_new_messages_before_a_mark_are_not_passed_over(
    pipeline: Pipeline, own: Path, client: Client
) -> None:
    """Floor 0 is in the log; the mark behind it, by which messages are passed over, is not."""
    client.command(f"CREATE TABLE {pipeline.database}.q AS {pipeline.table}")
    slow = f'[block.tables."{pipeline.database}.q"]\nmax_age_seconds = 600\n'
    config = pipeline.config(slow, flush_point_interval_seconds=600.0)
    relay = pipeline.start("a", config)
    producer = Producer({"bootstrap.servers": pipeline.bootstrap})
    headers = [("table", f"{pipeline.database}.q".encode())]
    pipeline.produce(producer, row_batch([0]), 0, headers)
    assert producer.flush(30) == 0
    pipeline.send(range(1, KEPT))
    pipeline.send(range(KEPT, READ))
    pipeline.until(lambda: mark(pipeline) == READ, "the mark")
    assert pipeline.floor(0) == 0
    relay.send_signal(signal.SIGKILL)
    relay.wait(30)
    lose_end(pipeline, own)
    pipeline.send(range(1000, 1100))

    stops(pipeline, config, "are in blocks, but the log lost its end and has grown again")
    accepted_and_read_on(pipeline, config)


def mark(pipeline: Pipeline) -> int:
    """The greatest of partition 0."""
    heads = pipeline.journal()[0][-1:]
    return max((mark.offset for head in heads for mark in head.marks), default=0)


def accepted_and_read_on(pipeline: Pipeline, config: Path) -> None:
    """What was read stays as it is, and each new message comes once."""
    status, said = person("accept", config)
    assert status == 2, said
    named = re.search(r"--from (\d+) is right", said)
    assert named is not None, said
    assert int(named[1]) == KEPT
    command = "accept", config, "--partition", "0", "--from", named[1], "--run", "--why", "a disk"
    status, said = person(*command)
    assert status == 0, said
    pipeline.start("a", config)
    sent = pipeline.sent
    pipeline.until(lambda: pipeline.rows().keys() >= sent.keys(), "the new messages")
    assert {id_: n for id_, n in pipeline.rows().items() if n != 1} == {}


def person(command: str, config: Path, *arguments: str) -> tuple[int, str]:
    """Exit status and all that a `relay` command printed."""
    done = subprocess.run(
        [RELAY, command, config, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def stops(pipeline: Pipeline, config: Path, why: str) -> None:
    relay = pipeline.start("a", config)
    wait_until(lambda: relay.poll() is not None, "the relay stops")
    log = pipeline.log(relay)
    assert (relay.poll(), why in log, "rewind#accept" in log) == (6, True, True), log


def lose_end(pipeline: Pipeline, own: Path) -> None:
    """Kill the broker, and start it again without what partition 0 holds from KEPT on."""
    broker.kill(own, 0)
    (segment,) = (own / broker.name(0)).glob(f"{pipeline.source}-0/*.log")
    data, at = segment.read_bytes(), 0
    while at < len(data):
        offset, size = struct.unpack_from(">qi", data, at)  # of a batch: its first offset, its size
        if offset >= KEPT:
            break
        at += 12 + size
    assert at < len(data), "no batch begins there"
    assert offset == KEPT
    with segment.open("r+b") as file:
        file.truncate(at)
    broker.start(own, 0)
