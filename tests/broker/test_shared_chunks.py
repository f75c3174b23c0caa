"""Small blocks of a table share a chunk: from source to table, and back to a message of one."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from relay.config import settings_file
from tests.broker.test_messages_left_out import checked, ran
from tests.loader.unsparked import load

if TYPE_CHECKING:
    from pathlib import Path

    from clickhouse_connect.driver.client import Client

    from relay.records_pb2 import Block
    from tests.broker.pipeline import Pipeline

HALVES = range(50), range(50, 100)
"""Ids in partition 1 and in partition 0."""


def sealed(pipeline: Pipeline, path: Path) -> list[Block]:
    """The blocks of both partitions' messages, which a relay found together."""
    young = "max_age_seconds = 0.2"
    text = path.read_text(encoding="utf-8")
    assert young in text  # a slow relay would seal one partition before it reads the other
    path.write_text(text.replace(young, "max_age_seconds = 3"), encoding="utf-8")
    pipeline.send(HALVES[0], 1)
    pipeline.send(HALVES[1])
    process = pipeline.start("a", path)
    pipeline.until(lambda: pipeline.rows() == pipeline.sent, "blocks of both")
    process.send_signal(signal.SIGTERM)
    assert pipeline.end_of(process) == 0
    return [b for commits in pipeline.journal().values() for c in commits for b in c.blocks]


@pytest.mark.parametrize("stamped", [True, False])
def test_blocks_of_two_partitions_share_a_chunk(
    pipeline: Pipeline, client: Client, *, stamped: bool
) -> None:
    """Inserted together, or one by one where the table has no column for the block's id."""
    if stamped:
        client.command(f"ALTER TABLE {pipeline.table} ADD COLUMN _block String")
    path = pipeline.config()
    blocks = sealed(pipeline, path)
    second = next(block for block in blocks if block.partition == 1)
    first = next(block for block in blocks if block.id == second.share.first)
    assert (second.share.partition, second.share.first_row) == (0, first.rows)
    assert (first.share.partition, first.share.first_row) == (0, 0)
    assert first.partition == 0
    assert (first.first_offset, first.crc32c) == (second.first_offset, second.crc32c)

    load(settings_file.load(path))
    found = client.query(f"SELECT count(), uniqExact(id) FROM {pipeline.table}").result_rows
    assert found == [(100, 100)]
    status, output = ran(path, "verify", "--once", "--deep")
    assert status == 0, output
    status, output = ran(path, "blocks", "show", second.id)
    assert status == 0, output
    assert f"[0], offsets {second.first_offset:,} to" in output
    assert f"its rows from {first.rows:,} on" in output
    _, output = ran(path, "blocks", "show", second.id, "--json")
    place = json.loads(output)["sealed"]["block_topic"]
    assert (place["partition"], place["first_row"]) == (0, first.rows)


def test_a_refused_message_is_the_one_of_its_own_partition(
    pipeline: Pipeline, client: Client
) -> None:
    path = checked(pipeline, client, 'rejected = "dead"')
    assert any(block.share.first_row for block in sealed(pipeline, path))
    load(settings_file.load(path))
    left = f"SELECT count(), uniqExact(id), countIf(id IN (17, 42)) FROM {pipeline.table}"
    assert client.query(left).result_rows == [(98, 98, 0)]
    status, output = ran(path, "dead", "ls", "--json")
    letters = [json.loads(line) for line in output.splitlines()]
    places = [(one["source_partition"], one["source_offset"]) for one in letters]
    assert places == [(1, 17), (1, 42)]
    status, output = ran(path, "dead", "show", letters[0]["place"])
    assert "1: id: 17" in output
    status, output = ran(path, "verify", "--once", "--deep")
    assert status == 0, output


def test_partitions_with_a_transaction_each_share_nothing(crossing: Pipeline) -> None:
    """With the source in another cluster one of them may come through without the other."""
    blocks = sealed(crossing, crossing.config())
    assert {block.partition for block in blocks} == {0, 1}
    assert not any(block.HasField("share") for block in blocks)
