"""A quota of the brokers, far below what the relay reads."""

from __future__ import annotations

import random
import subprocess
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from relay import names
from relay.dev import jars
from relay.program import java
from tests.broker.pipeline import length_prefixed, varint

if TYPE_CHECKING:
    from tests.broker.pipeline import Pipeline

BYTES_PER_SECOND = 1_000_000
ROW_BYTES, ROWS = 20_000, 1_200
"""24 MB: ten seconds' worth pass at once, and the rest takes more than a transaction's time."""


@pytest.mark.long  # 80 s
def test_a_backlog_gets_through_a_quota(pipeline: Pipeline) -> None:
    """Each attempt was as large as the last: the relay ended, and so did the next one."""
    chance = random.Random(7)
    producer = Producer({"bootstrap.servers": pipeline.bootstrap, "linger.ms": 5})
    for i in range(ROWS):
        value = chance.randbytes(ROW_BYTES // 2).hex().encode()
        row = b"\x08" + varint(i) + b"\x12" + length_prefixed(value)
        pipeline.produce(producer, b"\x0a" + length_prefixed(row), i % pipeline.partitions)
        producer.poll(0)
    assert producer.flush(60) == 0
    pipeline.sent.update(range(ROWS))
    limit(pipeline, names.transactional_id(pipeline.app, "a"))
    path = pipeline.config(transaction_timeout_seconds=6.0, session_timeout_seconds=8.0)
    text = path.read_text(encoding="utf-8").replace("[block]", "[block]\nchunk_bytes = 100000", 1)
    path.write_text(text, encoding="utf-8")
    relay = pipeline.start("a", path)

    def all_committed() -> bool:
        return sum(place.offset for place in pipeline.committed()) == ROWS

    pipeline.until(all_committed, "all is committed", 150)
    assert relay.poll() is None
    assert "perhaps too large for the brokers' speed" in pipeline.log(relay)
    pipeline.exactly_once()


def limit(pipeline: Pipeline, client: str) -> None:
    """Set the client's quota, as an operator does with kafka-configs: the Python client cannot."""
    library = jars.classpath(lambda _: None)[0].parent
    command = [str(java.require()), "-Xmx128m", "-cp", f"{library}/*", "kafka.admin.ConfigCommand"]
    command += ["--bootstrap-server", pipeline.bootstrap, "--alter", "--entity-type", "clients"]
    quota = f"producer_byte_rate={BYTES_PER_SECOND}"
    command += ["--entity-name", client, "--add-config", quota]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
