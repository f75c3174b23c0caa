"""Topics that do not show what the journal lists: hidden, lost, made anew, deleted."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from relay import names
from tests.broker.conftest import pipeline  # noqa: F401 - a fixture
from tests.broker.pipeline import Pipeline, create_topics, delete_topic
from tests.verify.test_live import RELAY

if TYPE_CHECKING:
    from pathlib import Path


def sealed(pipeline: Pipeline, config: Path, ids: range) -> str:  # noqa: F811
    """A relay seals them, and stops; the block topic."""
    relay = pipeline.start("a", config)
    pipeline.send(ids)
    pipeline.until(lambda: (pipeline.floor(0) or 0) >= ids.stop, "their floor")
    relay.terminate()
    assert pipeline.end_of(relay) == 0
    pipeline.await_markers(names.journal_topic(pipeline.app))
    return next(b.topic for commit in pipeline.journal()[0] for b in commit.blocks)


def deep(config: Path) -> tuple[str, list[str]]:
    """What was not judged, and the gaps; no loader runs, so blocks may count as late."""
    command = [RELAY, "verify", config, "--deep", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    found = [line["anomaly"] for line in lines if "anomaly" in line]
    not_judged = "\n".join(line["not_judged"] for line in lines if "not_judged" in line)
    return not_judged, [one["text"] for one in found if one["kind"] == "gap"]


def test_chunks_that_are_not_there_are_not_passed_over(pipeline: Pipeline) -> None:  # noqa: F811
    """Each of these was status 0, and not a word: such a block counted as one that came later."""
    config = pipeline.config(flush_point_interval_seconds=1.0)
    topic = sealed(pipeline, config, range(50))
    open_one = Producer(
        {
            "bootstrap.servers": pipeline.bootstrap,
            "transactional.id": f"{pipeline.app}-open",
            "transaction.timeout.ms": 300_000,  # the test ends it, not the broker
        }
    )
    open_one.init_transactions(30)
    open_one.begin_transaction()
    open_one.produce(topic, b"never committed", partition=0)
    open_one.flush(30)
    sealed(pipeline, config, range(50, 100))
    said, found = deep(config)
    assert f"{topic}[0]: an open transaction at offset" in said
    assert "hides the chunks of 1 block (the first is" in said
    assert found == []
    open_one.abort_transaction(30)
    pipeline.await_markers()
    said, found = deep(config)
    assert (said, found) == ("", [])

    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    delete_topic(admin, topic)
    said, found = deep(config)
    assert f"{topic} is not there" in said
    assert found == []
    create_topics(admin, NewTopic(topic, 1, 1))
    _, found = deep(config)
    assert len(found) == 2
    assert all("which ends at 0: they are lost" in text for text in found)
    block = next(b.id for commit in pipeline.journal()[0] for b in commit.blocks)
    command = [RELAY, "blocks", "show", config, block, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 1, done.stderr  # 4 before, after 30 s: "the brokers sent nothing"
    assert json.loads(done.stdout)["chunks"]["problems"], "it looks whole"


def test_letters_of_relays_have_to_be_there(pipeline: Pipeline) -> None:  # noqa: F811
    """Nobody looked: the topic could be emptied, and the message was nowhere."""
    config = pipeline.config(flush_point_interval_seconds=1.0)
    producer = Producer({"bootstrap.servers": pipeline.bootstrap, "acks": "all"})
    pipeline.produce(producer, b"for no table", 0, [])
    assert producer.flush(30) == 0
    relay = pipeline.start("a", config)
    pipeline.until(lambda: len(pipeline.dead()) == 1, "its letter")
    relay.terminate()
    assert pipeline.end_of(relay) == 0
    assert deep(config) == ("", [])

    topic = names.dead_topic(pipeline.app)
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    delete_topic(admin, topic)
    said, found = deep(config)
    assert f"{topic}[0] is not there" in said
    assert found == []
    create_topics(admin, NewTopic(topic, pipeline.partitions, 1))
    said, found = deep(config)
    assert (said, len(found)) == ("", 1)
    assert "lists 1 dead letter, but the topic has 0" in found[0]
