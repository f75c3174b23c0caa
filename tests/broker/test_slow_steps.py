"""A relay slower than its group allows, and brokers slower than the relay."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import psutil
import pytest
from confluent_kafka import Producer

from tests.broker.pipeline import WAIT_SECONDS, length_prefixed, varint
from tests.chaos.proxy_wire import Api

if TYPE_CHECKING:
    import subprocess

    from tests.broker.proxied_pipeline import ProxiedPipeline


@pytest.mark.long  # 23 s
def test_max_poll_interval_exceeded(proxied_pipeline: ProxiedPipeline) -> None:
    """It leaves the group, another member takes over; late, it commits nothing and comes back.

    It stands before a transaction: one that is open times out before the interval does, because
    a transaction's timeout lies below the session's, and that below the interval.
    """
    pipeline = proxied_pipeline
    gate = pipeline.directory / "gate"
    gate.touch()
    config = pipeline.config(
        '[kafka.client]\n"max.poll.interval.ms" = 3000',
        session_timeout_seconds=3.0,
        transaction_timeout_seconds=2.5,
    )
    slow = pipeline.start("a", config, f"before_begin:wait={gate}")
    pipeline.supervised["a"] = config, slow
    pipeline.send(range(100))
    pipeline.until(gate.with_name("gate.reached").exists, "the relay stands still")
    pipeline.supervise("b", pipeline.config())
    pipeline.until(lambda: pipeline.floor(0) == 100, "a commit of the other member")
    gate.unlink()

    pipeline.until(lambda: "max.poll.interval.ms" in pipeline.log(slow), "a warning names it")
    pipeline.send_until(lambda: pipeline.has_blocks_of("a"), "the member is back")
    pipeline.exactly_once()
    assert all(
        block.first_source_offset >= 100
        for commit in pipeline.journal()[0]
        if commit.member == "a"
        for block in commit.blocks
    ), "what it held for too long was committed"


ROW_BYTES = 20_000
ROWS = 4_000
MEMORY = 50_000_000
"""Bytes: less than the source has meanwhile (80 MB), more than the settings allow (a queue of ten
records, 1 MB fetched, 2 MB buffered) and allocators keep."""


def large_rows(pipeline: ProxiedPipeline, ids: range) -> None:
    """Rows of ROW_BYTES that hardly compress."""
    chance = random.Random(7)
    producer = Producer({"bootstrap.servers": pipeline.bootstrap, "linger.ms": 5})
    for i in ids:
        text = chance.randbytes(ROW_BYTES // 2).hex().encode()
        row = b"\x08" + varint(i) + b"\x12" + length_prefixed(text)
        pipeline.produce(producer, b"\x0a" + length_prefixed(row), 0)
        producer.poll(0)
    assert producer.flush(60) == 0
    pipeline.sent.update(ids)


def resident(process: subprocess.Popen[bytes]) -> int:
    """Resident bytes."""
    return int(psutil.Process(process.pid).memory_info().rss)


def test_a_broker_that_is_slower_than_the_source(proxied_pipeline: ProxiedPipeline) -> None:
    """The producer's queue is full: the relay waits, drops nothing, and its memory is bounded."""
    pipeline, proxy = proxied_pipeline, proxied_pipeline.proxy
    client = {
        "queue.buffering.max.messages": 10,
        "queued.max.messages.kbytes": 1000,
        "batch.num.messages": 2,
    }
    extra = "[kafka.client]\n" + "".join(f'"{k}" = {v}\n' for k, v in client.items())
    path = pipeline.config(
        extra,
        session_timeout_seconds=40.0,
        transaction_timeout_seconds=30.0,
        max_buffer_bytes=2_000_000,
    )
    text = path.read_text(encoding="utf-8").replace("[block]", "[block]\nchunk_bytes = 20000", 1)
    path.write_text(text, encoding="utf-8")
    relay = pipeline.start("a", path)
    pipeline.started()
    # The compiled decoder is loaded with the first large buffer, and stays.
    large_rows(pipeline, range(100))
    pipeline.until(lambda: pipeline.floor(0) == 100, "all code is loaded")
    held = proxy.hold(Api.PRODUCE, pipeline.client("a"))
    large_rows(pipeline, range(100, 300))
    held.wait_until_held(WAIT_SECONDS)
    before = resident(relay)
    large_rows(pipeline, range(300, ROWS))
    held.release()
    seen: list[int] = []

    def all_committed() -> bool:
        seen.append(resident(relay))
        return pipeline.floor(0) == ROWS

    pipeline.until(all_committed, "all that waited is committed")
    assert max(seen) < before + MEMORY, f"{before} bytes, then {max(seen)}"
    assert relay.poll() is None, pipeline.log(relay)
    pipeline.exactly_once()
