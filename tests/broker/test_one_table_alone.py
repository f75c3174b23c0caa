"""What Kafka says against one table or one message holds up no other."""

from __future__ import annotations

import base64
import random
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented, not in __all__
    AdminClient,
    NewTopic,
)

from relay import names
from relay.dev import broker
from tests.broker.pipeline import (
    PARTITIONS,
    create_topics,
    length_prefixed,
    row_batch,
    varint,
    wait_until,
)
from tests.broker.test_wrong_surroundings_end_with_a_clear_error import ran_once
from tests.broker.topic_changes import set_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from clickhouse_connect.driver.client import Client

    from relay.dev.stack import Stack
    from tests.broker.pipeline import Pipeline


@pytest.fixture
def twins(pipeline: Pipeline, client: Client) -> Iterator[tuple[str, str]]:
    """Two tables whose plain topic names Kafka takes for the same."""
    one, other = f"{pipeline.database}.x_t", f"{pipeline.database}_x.t"
    client.command(f"CREATE DATABASE {pipeline.database}_x")
    for table in (one, other):
        client.command(f"CREATE TABLE {table} AS {pipeline.table}")
    yield one, other
    client.command(f"DROP DATABASE {pipeline.database}_x SYNC")


def send(pipeline: Pipeline, table: str, row: int) -> None:
    producer = Producer({"bootstrap.servers": pipeline.bootstrap})
    pipeline.produce(producer, row_batch([row]), 0, [("table", table.encode())])
    assert producer.flush(30) == 0


def relayed(pipeline: Pipeline, tables: Iterable[str], first: int) -> None:
    """A row into each table, the first numbered so, through a relay that is started."""
    for row, table in enumerate(tables, first):
        send(pipeline, table, row)
        pipeline.sent.update([row])
    pipeline.start("a")
    pipeline.exactly_once()


def make(pipeline: Pipeline, topic: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    create_topics(admin, NewTopic(topic, partitions, 1))


def topics_of(pipeline: Pipeline) -> dict[str, str]:
    """By table, of the blocks that the journal names."""
    commits = (c for cs in pipeline.journal().values() for c in cs)
    return {b.table: b.topic for c in commits for b in c.blocks}


def test_tables_whose_topics_kafka_takes_for_the_same(
    pipeline: Pipeline, twins: tuple[str, str]
) -> None:
    """Each gets a topic of its own, whichever comes first, and goes on with it after a restart."""
    relayed(pipeline, twins, 0)
    pipeline.stop_all()
    relayed(pipeline, reversed(twins), 2)
    assert topics_of(pipeline) == {
        twins[0]: f"{pipeline.app}.blocks.{pipeline.database}.x_t",
        twins[1]: f"{pipeline.app}.blocks.{pipeline.database}_x-t",
    }
    assert pipeline.dead() == []


def test_a_topic_that_an_earlier_version_made_stays(
    pipeline: Pipeline, twins: tuple[str, str]
) -> None:
    """The table that had its topic by the plain name keeps it, and the other gets a dashed one."""
    plain = f"{pipeline.app}.blocks.{twins[1]}"
    make(pipeline, plain)
    relayed(pipeline, twins, 0)
    assert topics_of(pipeline) == {
        twins[0]: f"{pipeline.app}.blocks.{pipeline.database}-x_t",
        twins[1]: plain,
    }


def test_a_block_topic_that_no_source_partition_fits(pipeline: Pipeline, client: Client) -> None:
    """Its table's messages are dead letters with the reason, and other tables' rows go on."""
    wide = f"{pipeline.database}.wide"
    client.command(f"CREATE TABLE {wide} AS {pipeline.table}")
    make(pipeline, names.blocks_topic(pipeline.app, wide), PARTITIONS + 1)
    send(pipeline, wide, 7)
    pipeline.send([1, 2])
    relay = pipeline.start("a")
    pipeline.exactly_once()
    pipeline.until(lambda: len(pipeline.dead()) == 1, "the dead letter")
    ((_, headers),) = pipeline.dead()
    assert headers["table"] == wide
    assert headers["reason"].startswith(f"no block topic for {wide}: ")
    assert "has 3 partitions, the source 2" in headers["reason"]
    assert relay.poll() is None, pipeline.log(relay)


# ---- one message too large -------------------------------------------------------------------

MIB = 1 << 20
WAVE = 20_000
"""Bad messages: one by one they take longer than most transactions may last."""


def limit(pipeline: Pipeline, topic: str, most: int) -> None:
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    set_topic(admin, topic, max_message_bytes=most)


def large(row: int, size: int) -> bytes:
    """One row with so many bytes of text that nothing makes smaller."""
    text = base64.b64encode(random.Random(row).randbytes(size * 3 // 4))
    fields = b"\x08" + varint(row) + b"\x12" + length_prefixed(text)
    return b"\x0a" + length_prefixed(fields)


def send_values(pipeline: Pipeline, values: dict[bytes, str]) -> None:
    """Source messages with their tables.

    Those that are too large are sent again: Kafka's metadata may say a setting before the topic's
    log goes by it.
    """
    refused: list[bytes] = []

    def answered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE, error
            refused.append(message.value() or b"")

    given: dict[str, Any] = {
        "bootstrap.servers": pipeline.bootstrap,
        "message.max.bytes": 95 * MIB,
        "on_delivery": answered,
    }
    producer = Producer(given)

    def all_taken(left: list[bytes]) -> bool:
        refused.clear()
        for value in left:
            pipeline.produce(producer, value, 0, [("table", values[value].encode())])
        assert producer.flush(60) == 0
        return not refused

    if not all_taken(list(values)):
        wait_until(lambda: all_taken(list(refused)), "a log that goes by its topic's setting")


def test_rows_larger_than_their_block_topic_takes(pipeline: Pipeline, client: Client) -> None:
    """Two of three tables have one: dead letters, whole, with the reason; all else goes on."""
    others = [f"{pipeline.database}.{name}" for name in ("large", "plain")]
    for table in others:
        client.command(f"CREATE TABLE {table} AS {pipeline.table}")
    limit(pipeline, pipeline.source, 90 * MIB)
    pipeline.send([1, 2])
    values = {large(3, 20 * MIB): pipeline.table, large(4, 18 * MIB): others[0]}
    send_values(pipeline, values)
    send_values(pipeline, {row_batch([5]): others[0], row_batch([6]): others[1]})
    pipeline.sent.update([5, 6])
    pipeline.send([7, 8])
    relay = pipeline.start("a")
    pipeline.exactly_once()
    pipeline.until(lambda: len(pipeline.dead()) == 2, "dead letters")
    assert {value: headers["table"] for value, headers in pipeline.dead()} == values
    for _, headers in pipeline.dead():
        alone = r"row 1: the row alone needs a chunk of [\d,]{10} bytes"
        assert re.match(alone, headers["reason"])
        assert "block topic accepts records of 16,776,216 bytes" in headers["reason"]
    assert relay.poll() is None
    pipeline.send([9])
    pipeline.exactly_once()


def test_a_dead_letter_larger_than_its_topic_takes(pipeline: Pipeline) -> None:
    """It says where the message is and why; a replay leaves it, and the rows beside it go on."""
    ran_once(pipeline)
    limit(pipeline, pipeline.source, 90 * MIB)
    limit(pipeline, f"{pipeline.app}.dead", MIB)
    send_values(pipeline, {b"\xff" + large(3, 2 * MIB): pipeline.table, b"\xff": pipeline.table})
    pipeline.send([1000])
    config = pipeline.config()
    relay = pipeline.start("a", config)
    pipeline.exactly_once()
    pipeline.until(lambda: len(pipeline.dead()) == 2, "dead letters")
    assert relay.poll() is None
    whole, (value, headers) = sorted(pipeline.dead(), key=lambda letter: letter[0] is None)
    assert value is None
    assert int(headers["source_value_bytes"]) > MIB
    assert "is only in the source topic" in headers["reason"]
    assert whole[0] == b"\xff"
    command = [Path(sys.executable).parent / "relay", "dead", "replay", "--config", config]
    options = ["--table", pipeline.table, "--run"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert "is only in the source topic" in done.stdout + done.stderr, done


def batches(stack: Stack, topic: str) -> int:
    """How many batches of records the log of the first partition has."""
    count = 0
    for segment in (stack.directory / broker.name(0)).glob(f"{topic}-0/*.log"):
        data, at = segment.read_bytes(), 0
        while at < len(data):
            _, size = struct.unpack_from(">qi", data, at)  # its first offset, its size
            count, at = count + 1, at + 12 + size
    return count


@pytest.mark.parametrize("most", [2 * MIB, 100_000], ids=["a large record", "a batch"])
def test_a_wave_of_bad_messages_behind_a_refusal(
    pipeline: Pipeline, stack: Stack, most: int
) -> None:
    """Red before: each waited for the one before it, all together longer than a transaction may
    take, so that the relay ended; and so did the next."""
    ran_once(pipeline)
    limit(pipeline, pipeline.source, 90 * MIB)
    limit(pipeline, f"{pipeline.app}.dead", most)
    send_values(pipeline, {b"\xff" + large(3, 3 * MIB): pipeline.table})
    # Its letters are one transaction, of some seconds: none may run into its end.
    config = pipeline.config(transaction_timeout_seconds=20.0, session_timeout_seconds=25.0)
    relay = pipeline.start("a", config)
    pipeline.until(lambda: len(pipeline.dead()) == 1, "the dead letter of the large one")
    send_values(pipeline, {b"\xff%d" % number: pipeline.table for number in range(WAVE)})
    pipeline.until(lambda: len(pipeline.dead()) == 1 + WAVE, "all dead letters")
    assert batches(stack, f"{pipeline.app}.dead") < WAVE / 10, "each waited for the one before"
    assert relay.poll() is None, pipeline.log(relay)
    pipeline.send([1000])
    pipeline.exactly_once()


@pytest.fixture(params=["pipeline", "crossing"], ids=["one cluster", "two clusters"])
def either(request: pytest.FixtureRequest) -> Pipeline:
    """A pipeline whose source is in the cluster that the relay writes, or in another one."""
    made: Pipeline = request.getfixturevalue(request.param)
    return made


@pytest.mark.servers
def test_a_topic_narrower_than_a_batch(either: Pipeline) -> None:
    """Rows that fit it one by one go there one by one: none becomes a dead letter.

    Red before, across clusters: the same batch was sent for ever.
    """
    pipeline = either
    topic = names.blocks_topic(pipeline.app, pipeline.table)
    make(pipeline, topic)
    limit(pipeline, topic, 100_000)
    rows = {large(row, 60_000): pipeline.table for row in range(8)}
    send_values(pipeline, rows)
    relay = pipeline.start("a")

    def all_there() -> bool:
        return sum(pipeline.rows().values()) + len(pipeline.dead()) == 8

    pipeline.until(all_there, "every row in a block")
    assert pipeline.dead() == []
    assert relay.poll() is None
    pipeline.chain_is_whole()
