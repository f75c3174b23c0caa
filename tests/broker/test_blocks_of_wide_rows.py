"""Buffers whose rows take more as columns than a block may: several blocks, and nothing is lost."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from relay.config import settings_file
from relay.core.block_bound import ALONE
from tests.broker.pipeline import row_batch
from tests.broker.test_messages_left_out import ran
from tests.loader.unsparked import load

if TYPE_CHECKING:
    from pathlib import Path

    from clickhouse_connect.driver.client import Client

    from tests.broker.pipeline import Pipeline

UNSET = 100
"""Columns that no row sets."""
ROW_BYTES = (65 + 33 + 65 * UNSET) // 8
"""Of a row (id Int64, v String, and those of Nullable(Float64)) as columns."""
ROWS = 100
"""That a block may have here."""


def bounded(pipeline: Pipeline) -> Path:
    path = pipeline.config()
    text = path.read_text("utf-8")
    most = f"[block]\nmax_decoded_bytes = {ROWS * ROW_BYTES}\n"
    path.write_text(text.replace("[block]\n", most), "utf-8")
    return path


def test_a_backlog_of_wide_rows_becomes_many_blocks(pipeline: Pipeline, client: Client) -> None:
    """Of a table that is new to the relay, so that it learns what a row takes only by a block.

    It is killed on the way, and told to stop while some still waits.
    """
    path = bounded(pipeline)
    more = ", ".join(f"ADD COLUMN unset{n} Nullable(Float64)" for n in range(UNSET))
    client.command(f"ALTER TABLE {pipeline.table} {more}")
    pipeline.send(range(1_000), per_message=30)
    pipeline.send(range(1_000, 1_500), 1)
    large = row_batch(range(2_000, 2_000 + ALONE * ROWS + 1))
    producer = Producer({"bootstrap.servers": pipeline.bootstrap})
    pipeline.produce(producer, large, 0)
    assert producer.flush(30) == 0
    pipeline.send(range(1_500, 1_650), per_message=2 * ROWS)

    first = pipeline.start("a", path, "before_commit:kill:4")
    first.wait(60)
    before = pipeline.rows()
    assert before.keys() < pipeline.sent.keys()
    second = pipeline.start("a", path)
    pipeline.until(lambda: pipeline.rows() > before, "another block")
    second.send_signal(signal.SIGTERM)
    assert pipeline.end_of(second) == 0
    third = pipeline.start("a", path)
    pipeline.until(lambda: pipeline.rows() == pipeline.sent, "all rows")
    pipeline.until(lambda: bool(pipeline.dead()), "the dead letter")
    pipeline.send(range(1_650, 2_000), per_message=10)
    pipeline.until(lambda: pipeline.rows() == pipeline.sent, "rows that came later")
    third.send_signal(signal.SIGTERM)
    assert pipeline.end_of(third) == 0

    blocks = [b for commits in pipeline.journal().values() for c in commits for b in c.blocks]
    assert [block.rows for block in blocks if block.rows > ROWS] == [150], "a message alone"
    assert len(blocks) > 2_000 / ROWS
    [(value, letter)] = pipeline.dead()
    assert value == large
    assert letter["reason"].startswith("401 rows, and a message may have 400: each takes 824 bytes")
    pipeline.chain_is_whole()

    load(settings_file.load(path))
    found = client.query(f"SELECT count(), uniqExact(id) FROM {pipeline.table}").result_rows
    assert found == [(2_000, 2_000)]
    status, output = ran(path, "verify", "--once", "--deep")
    assert status == 0, output
