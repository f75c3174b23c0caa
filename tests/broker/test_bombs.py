"""Messages that are small only while they are compressed, and such with very many headers."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.broker.pipeline import Pipeline, wait_until

MIB = 1 << 20
INFLATED = 60 * MIB
"""What librdkafka inflates at most is receive.message.max.bytes, 100 MB."""
BEYOND = 200 * MIB
HEADERS = 100_000
"""Of a message with more, librdkafka reads none."""
MOST = 16 * INFLATED
"""By which resident memory may rise: the message in librdkafka, in Python and in Arrow, what is
decoded of it, its dead letter, and what librdkafka keeps of that until it is acknowledged."""
PATIENCE_SECONDS = 150.0


def resident(pid: int, what: str) -> int:
    """Bytes: `VmRSS` now, `VmHWM` at most since `forget_most`."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    found = re.search(rf"^{what}:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None, status
    return int(found[1]) * 1024


def forget_most(pid: int) -> None:
    """The peak begins anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="utf-8")


def compressing(pipeline: Pipeline, codec: str) -> Producer:
    return Producer({
        "bootstrap.servers": pipeline.bootstrap,
        "compression.type": codec,
        "message.max.bytes": 2 * BEYOND,
        "batch.num.messages": 1,
    })  # fmt: skip


def send_bombs(pipeline: Pipeline, codec: str) -> None:
    """One that inflates to so much and one of headers in partition 0; a larger one in 1.

    That is of zstd, of which alone librdkafka bounds what it inflates.
    """
    producer = compressing(pipeline, codec)
    headers: list[tuple[str, str | bytes | None]] = [("table", pipeline.table.encode())]
    pipeline.produce(producer, bytes(INFLATED), 0)
    pipeline.produce(producer, b"\xff", 0, headers + [("h", b"")] * (HEADERS - 1))
    pipeline.produce(producer, b"\xfe", 0, headers + [("h", b"")] * HEADERS)
    bounded = compressing(pipeline, "zstd")
    pipeline.produce(bounded, bytes(BEYOND), 1)
    assert producer.flush(60) == bounded.flush(60) == 0


@pytest.mark.parametrize(
    "codec",
    [
        "zstd",
        pytest.param("lz4", marks=pytest.mark.long),
        pytest.param("gzip", marks=pytest.mark.long),
    ],
)
def test_bombs_are_dead_letters_or_told_and_memory_is_bounded(
    pipeline: Pipeline, codec: str
) -> None:
    pipeline.patience_seconds = PATIENCE_SECONDS
    # On a crowded machine 60 MiB may take longer than the seconds that other tests allow.
    patient = {"session_timeout_seconds": 45.0, "transaction_timeout_seconds": 40.0}
    relay = pipeline.start("a", pipeline.config(**patient))
    pipeline.send(range(10))
    pipeline.exactly_once()
    before = resident(relay.pid, "VmRSS")
    forget_most(relay.pid)

    send_bombs(pipeline, codec)
    pipeline.send(range(10, 20))
    pipeline.exactly_once()
    assert INFLATED < resident(relay.pid, "VmHWM") - before < MOST, "the measure sees it, and more"

    pipeline.await_markers()
    letters = dict(pipeline.dead())
    assert letters.keys() == {bytes(INFLATED), b"\xff", b"\xfe"}, "each whole"
    assert letters[b"\xff"]["source_headers"] == str(HEADERS), "and some of its own"
    assert letters[b"\xff"]["table"] == pipeline.table
    assert "more than 100,000 headers" in letters[b"\xfe"]["reason"], (
        "it is said that they are lost"
    )
    wait_until(
        lambda: "cannot continue reading" in pipeline.log(relay), "a line about the largest one"
    )
    line, *_ = [
        line for line in pipeline.log(relay).splitlines() if "cannot continue reading" in line
    ]
    for part in (f"topic={pipeline.source}", "partition=1 offset=0", "receive.message.max.bytes"):
        assert part in line
    assert pipeline.floor(1) <= 0, "it waits, and nothing is passed over"
    relay.send_signal(signal.SIGTERM)
    assert relay.wait(PATIENCE_SECONDS) == 0
