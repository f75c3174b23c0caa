"""A topic that is deleted, made anew, emptied or narrowed while a relay works.

A named end, and rows once."""

from __future__ import annotations

import json
import random
import signal
import string
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented, not in __all__
    AdminClient,
    NewTopic,
)

from relay import names
from relay.cli import cli
from tests.broker.pipeline import (
    PARTITIONS,
    WAIT_SECONDS,
    create_topics,
    delete_topic,
    length_prefixed,
    row_batch,
    wait_until,
)
from tests.broker.test_wrong_surroundings_end_with_a_clear_error import ended, ran_once
from tests.broker.topic_changes import set_topic

if TYPE_CHECKING:
    from pathlib import Path

    from clickhouse_connect.driver.client import Client

    from tests.broker.cross_pipeline import CrossPipeline
    from tests.broker.pipeline import Pipeline


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


# ---- deleted: the 27th fault ------------------------------------------------------------------


def test_a_block_topic_deleted_in_a_transaction(pipeline: Pipeline, admin: AdminClient) -> None:
    """Status 5 and the topic's name; nothing creates it behind the relay's back.

    The next start makes it anew, and every row is there once.
    """
    deleted_in_a_transaction(pipeline, admin, names.blocks_topic(pipeline.app, pipeline.table))

    pipeline.start("a")
    pipeline.exactly_once()


def deleted_in_a_transaction(pipeline: Pipeline, admin: AdminClient, topic: str) -> None:
    """A relay whose topic goes ends with status 5, and the topic stays away."""
    gate = pipeline.directory / "gate"
    gate.touch()
    relay = pipeline.start("a", failpoint=f"before_produce:wait={gate}:2")
    pipeline.until(lambda: sum(map(len, pipeline.journal().values())) == 2, "the first transaction")
    pipeline.send(range(100))
    pipeline.until(gate.with_name("gate.reached").exists, "the relay waits in its transaction")
    delete_topic(admin, topic)
    gate.unlink()

    wait_until(lambda: relay.poll() is not None, "the end of the relay")
    assert relay.returncode == 5, pipeline.log(relay)
    assert f"topic {topic} does not exist any more" in pipeline.log(relay)
    assert topic not in topics(admin), "somebody made it anew"
    assert pipeline.floor(0) == 0, "a floor was committed"


def topics(admin: AdminClient) -> set[str]:
    return set(admin.list_topics(timeout=WAIT_SECONDS).topics)


# ---- made anew -------------------------------------------------------------------------------


def test_a_source_made_anew_and_longer_than_the_position(pipeline: Pipeline) -> None:
    """Status 6 and both ids, as at a start; the client itself reads on at the old offset.

    The relay took the 20 new messages from offset 10 on for rows, and nobody heard of the first 10.
    """
    config = pipeline.config()
    stops_at_another_source(pipeline, config)

    accept = pipeline.watch("accept", config, "--run", "--why", "a test")
    assert pipeline.end_of(accept) == 0
    pipeline.start("a", config)
    pipeline.until(lambda: pipeline.rows() == pipeline.sent, "each message of both, once")


@pytest.mark.long
def test_a_source_made_anew_in_another_cluster(crossing: CrossPipeline) -> None:
    stops_at_another_source(crossing, crossing.config())


def stops_at_another_source(pipeline: Pipeline, config: Path) -> None:
    """A relay that has read the old one takes nothing of the new one."""
    relay = pipeline.start("a", config)
    pipeline.send(range(10))
    pipeline.until(lambda: pipeline.rows() == pipeline.sent, "rows")
    relay.send_signal(signal.SIGSTOP)
    pipeline.delete_source()
    pipeline.create_source()
    pipeline.send(range(100, 130))
    relay.send_signal(signal.SIGCONT)

    status, log = ended(pipeline, relay)

    assert (status, "topic id changed from" in log) == (6, True), log


# ---- emptied: the 29th ------------------------------------------------------------------------


def delete_records(pipeline: Pipeline, admin: AdminClient, before: int) -> None:
    """What retention does: the first offsets of partition 0 are gone."""
    place = TopicPartition(pipeline.source, 0, before)
    admin.delete_records([place])[place].result(30)


def test_retention_passed_what_was_never_read(pipeline: Pipeline, admin: AdminClient) -> None:
    """Status 6 and the offsets that are lost; nothing behind them is read."""
    ran_once(pipeline)
    pipeline.send(range(100, 130))
    delete_records(pipeline, admin, 25)

    status, log = ended(pipeline, pipeline.start("a"))

    assert status == 6
    assert "offsets 10 to 24 were never read and are gone" in log
    assert pipeline.floor(0) == 10


def test_retention_passes_a_relay_that_is_behind(pipeline: Pipeline, admin: AdminClient) -> None:
    """Status 6, the topic and partition: what is left is not taken for what comes next."""
    # It stays a member while it is stopped.
    patient = pipeline.config(session_timeout_seconds=45.0, transaction_timeout_seconds=40.0)
    relay = pipeline.start("a", patient)
    pipeline.send(range(10))
    pipeline.until(lambda: pipeline.rows() == pipeline.sent, "rows")
    relay.send_signal(signal.SIGSTOP)
    # More than one fetch brings: the one that was under way is answered from its beginning.
    for first in range(100, 500, 100):
        pipeline.send(range(first, first + 100))
    delete_records(pipeline, admin, 400)
    relay.send_signal(signal.SIGCONT)

    wait_until(lambda: relay.poll() is not None, "the end of the relay")
    log = pipeline.log(relay)
    assert relay.returncode == 6, log
    assert f"cannot continue reading {pipeline.source}[0]" in log
    assert pipeline.floor(0) < 400
    pipeline.chain_is_whole()
    found = sorted(pipeline.rows())
    assert found == sorted(pipeline.sent)[: len(found)], "rows behind the gap were taken"


# ---- narrowed: the 25th -----------------------------------------------------------------------


def test_a_chunk_larger_than_its_topic_takes(pipeline: Pipeline, admin: AdminClient) -> None:
    """A dead letter with topic and setting; once the limit is raised, such a row is a row."""
    topic = names.blocks_topic(pipeline.app, pipeline.table)
    narrow = NewTopic(topic, PARTITIONS, 1, config={"max.message.bytes": "100000"})
    create_topics(admin, narrow)
    letters = string.ascii_letters + string.digits
    text = "".join(random.Random(7).choices(letters, k=400_000)).encode()
    row = b"\x08" + b"\x64" + b"\x12" + length_prefixed(text)
    producer = Producer({"bootstrap.servers": pipeline.bootstrap})
    pipeline.produce(producer, b"\x0a" + length_prefixed(row), 0)
    pipeline.produce(producer, row_batch([101]), 0)
    assert producer.flush(30) == 0
    pipeline.sent.update([101])

    relay = pipeline.start("a", pipeline.config(schema_refresh_seconds=1.0))
    pipeline.exactly_once()
    pipeline.until(lambda: len(pipeline.dead()) == 1, "the dead letter")
    assert "raise its max.message.bytes" in pipeline.dead()[0][1]["reason"]

    set_topic(admin, topic, max_message_bytes=16 << 20)

    def arrived() -> bool:
        pipeline.produce(producer, b"\x0a" + length_prefixed(row), 0)
        assert producer.flush(30) == 0
        return pipeline.rows()[100] > 0

    pipeline.until(arrived, "the row, once a refresh of the tables found the limit raised")
    assert relay.poll() is None


# ---- the schema registry ----------------------------------------------------------------------


@pytest.mark.long  # 50 s
def test_field_numbers_that_are_lost_are_not_given_anew(
    pipeline: Pipeline, admin: AdminClient, client: Client
) -> None:
    """Status 6 where their topic is gone, or was made anew; with the producers' file rows go on.

    The relay made the topic anew, and since the ALTER the text of `v` would have come into `w`.
    """
    ran_once(pipeline)
    config, topic = pipeline.config(), names.schemas_topic(pipeline.app)
    file = pipeline.directory / "row.proto"
    file.write_text(said(pipeline, config, "proto", pipeline.table), encoding="utf-8")
    client.command(f"ALTER TABLE {pipeline.table} ADD COLUMN w String AFTER id")
    delete_topic(admin, topic)

    status, log = ended(pipeline, pipeline.start("a", config))

    assert (status, f"{topic} does not exist, but" in log) == (6, True), log
    assert topic not in topics(admin)
    assert "registry-lost" in findings(config)

    create_topics(admin, NewTopic(topic, 1, 1, config={"cleanup.policy": "compact"}))
    pipeline.send(range(20, 30))
    status, log = ended(pipeline, pipeline.start("a", config))

    assert (status, f"{topic} is empty, but" in log) == (6, True), log
    assert "registry-lost" in findings(config)
    assert "written" in said(pipeline, config, "seed", file, "--run")
    assert "registry-lost" not in findings(config)
    pipeline.start("a", config)
    pipeline.exactly_once()
    found: dict[int, tuple[str, str]] = {}
    for block in (b for commits in pipeline.journal().values() for c in commits for b in c.blocks):
        rows = pipeline.rows_of(block, {}).to_pylist()
        found |= {row["id"]: (row["v"], row.get("w")) for row in rows}
    assert found == {i: (f"v{i}", None) for i in pipeline.sent}


def said(pipeline: Pipeline, config: Path, *command: object) -> str:
    """What `relay schema` prints."""
    done = pipeline.watch("schema", *command, "--config", config)  # type: ignore[arg-type]
    assert pipeline.end_of(done) == 0
    return pipeline.log(done)


def findings(config: Path) -> set[str]:
    """Codes of the doctor's findings."""
    done = CliRunner().invoke(cli, ["doctor", str(config), "--json"])
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["finding"]["code"] for line in lines if "finding" in line}
