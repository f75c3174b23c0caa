"""Partitions added to the source: taken at once, from their beginning, and the app grows along."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented, not in __all__
    AdminClient,
    NewPartitions,
)

from relay import names
from tests.broker.pipeline import PARTITIONS, WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.pipeline import Pipeline

GROWN = PARTITIONS + 2
TAKEN_SECONDS = 120.0
"""From the growth to the rows; a client that nobody told asks every five minutes."""


def grow(pipeline: Pipeline, topic: str, partitions: int = GROWN) -> None:
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
    wait_until(lambda: width(pipeline, topic) == partitions, "the growth")
    if topic == pipeline.source:
        pipeline.partitions = partitions


def width(pipeline: Pipeline, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    return len(admin.list_topics(topic, timeout=WAIT_SECONDS).topics[topic].partitions)


def starts_at(pipeline: Pipeline, start: str) -> Path:
    """A configuration with this `source.start`."""
    path = pipeline.config()
    text = path.read_text("utf-8").replace('start = "earliest"', f'start = "{start}"')
    path.write_text(text, "utf-8")
    return path


def recorded(pipeline: Pipeline) -> None:
    """Both partitions have begun, so that what comes now is after the start."""
    pipeline.until(lambda: all(pipeline.journal().values()), "the first records")


def all_taken(pipeline: Pipeline, widest: int = 1) -> None:
    """All rows came; of a block topic small blocks need the lowest partition of each relay."""
    rows = lambda: pipeline.rows() == pipeline.sent  # noqa: E731
    pipeline.until(rows, "rows of all partitions", TAKEN_SECONDS)
    pipeline.exactly_once()
    for topic in (names.journal_topic(pipeline.app), names.dead_topic(pipeline.app)):
        assert width(pipeline, topic) == GROWN, topic
    blocks = names.blocks_topic(pipeline.app, pipeline.table)
    assert width(pipeline, blocks) <= widest, "small blocks need no more"


@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_partitions_added_while_a_relay_runs(pipeline: Pipeline, start: str) -> None:
    """Ten of thirty came, and the relay waited in its assignment for ever."""
    relay = pipeline.start("a", starts_at(pipeline, start))
    recorded(pipeline)
    pipeline.send(range(10))
    pipeline.until(lambda: pipeline.rows() == pipeline.sent, "rows before")

    grow(pipeline, pipeline.source)
    begun = time.monotonic()
    for partition in range(GROWN):
        pipeline.send(range(100 * partition + 100, 100 * partition + 105), partition)

    all_taken(pipeline)
    assert time.monotonic() - begun < TAKEN_SECONDS
    assert relay.poll() is None, pipeline.log(relay)


def test_partitions_added_while_an_assignment_is_under_way(pipeline: Pipeline) -> None:
    """The client rejoins by itself, and gives the next assignment without a revocation.

    The relay took what it still owned for assigned, and assigned the new ones alone: nothing of
    the others came, and after ten seconds it ended with status 4.
    """
    gate = pipeline.directory / "gate"
    gate.touch()
    relay = pipeline.start("a", failpoint=f"before_truth:wait={gate}")
    pipeline.until(gate.with_name("gate.reached").exists, "the assignment")

    grow(pipeline, pipeline.source)
    pipeline.until(lambda: given(pipeline) == set(range(GROWN)), "the next assignment")
    gate.unlink()
    for partition in range(GROWN):
        pipeline.send(range(100 * partition + 100, 100 * partition + 105), partition)

    all_taken(pipeline)
    assert relay.poll() is None, pipeline.log(relay)


def given(pipeline: Pipeline) -> set[int]:
    """Partitions that the group has given to its members."""
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    group = f"{pipeline.app}.relay"
    members = admin.describe_consumer_groups([group])[group].result(30).members
    return {place.partition for one in members for place in one.assignment.topic_partitions}


def test_partitions_added_while_no_relay_runs(pipeline: Pipeline) -> None:
    """With "latest" the rows of the new ones were lost in silence at the next start."""
    path = starts_at(pipeline, "latest")
    relay = pipeline.start("a", path)
    recorded(pipeline)
    pipeline.send(range(10))
    pipeline.until(lambda: pipeline.rows() == pipeline.sent, "rows before")
    relay.send_signal(signal.SIGTERM)
    relay.wait(30)

    grow(pipeline, pipeline.source)
    for partition in range(GROWN):
        pipeline.send(range(100 * partition + 100, 100 * partition + 105), partition)

    pipeline.start("a", path)
    all_taken(pipeline)


@pytest.mark.long
@pytest.mark.parametrize("processes", [1, 2])
def test_partitions_added_while_several_relays_run(pipeline: Pipeline, processes: int) -> None:
    """One more starts between the growth and the assignment that it brings."""
    path = starts_at(pipeline, "latest")
    more = ("--processes", str(processes)) if processes > 1 else ()
    relays = [pipeline.start(member, path, arguments=more) for member in ("a", "b")]
    recorded(pipeline)
    pipeline.send(range(10))
    pipeline.until(lambda: pipeline.rows() == pipeline.sent, "rows before")

    grow(pipeline, pipeline.source)
    relays.append(pipeline.start("c", path))
    for partition in range(GROWN):
        pipeline.send(range(100 * partition + 100, 100 * partition + 105), partition)

    all_taken(pipeline, GROWN)
    for relay in relays:
        assert relay.poll() is None, pipeline.log(relay)


@pytest.mark.long
def test_two_relays_that_start_at_once_with_latest(pipeline: Pipeline) -> None:
    """No partition is new: what was there before the first start is nobody's."""
    path = starts_at(pipeline, "latest")
    for partition in range(PARTITIONS):
        pipeline.send(range(100 * partition, 100 * partition + 5), partition)
    pipeline.sent.clear()
    pipeline.start("a", path)
    pipeline.start("b", path)
    recorded(pipeline)
    for partition in range(PARTITIONS):
        pipeline.send(range(100 * partition + 50, 100 * partition + 55), partition)
    pipeline.exactly_once()
