"""A partition that had no leader for a moment is asked about again as soon as it has one."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from relay import names
from relay.config import kafka_clients
from relay.errors import Unavailable
from relay.kafka import transactional_producer
from relay.kafka.partition_ends import TopicEnds, dark_places
from relay.kafka.partition_reader import PartitionReader
from relay.operate.verify.read.journal import Reader
from relay.schema.registry import Registry
from tests.mock.cluster import Api, Cluster
from tests.mock.rig import LEADER, SOURCE, Course, Rig, relay_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relay.config.settings import Settings

NOBODY = -1
SECONDS = 10.0
PLACE = TopicPartition(SOURCE, 0)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """The source's only partition has no leader."""
    with Cluster(3) as made:
        made.create_topic(SOURCE)
        made.create_topic(names.journal_topic("app"))
        made.set_leader(SOURCE, 0, NOBODY)
        yield made


@pytest.fixture
def settings(cluster: Cluster) -> Settings:
    return relay_settings("app", cluster.bootstrap, 30.0, {})


def why_not(reader: Consumer, place: TopicPartition = PLACE) -> int:
    """The code that the question for a partition's ends is answered with."""
    with pytest.raises(KafkaException) as error:
        reader.get_watermark_offsets(place, timeout=SECONDS)
    return int(error.value.args[0].code())


def test_a_reader_hears_of_the_new_leader(cluster: Cluster, settings: Settings) -> None:
    """At the next question; and a partition without a leader is not one that is gone."""
    reader = PartitionReader(kafka_clients.reader(settings.kafka))
    assert why_not(reader) == KafkaError.LEADER_NOT_AVAILABLE
    assert why_not(reader, TopicPartition(SOURCE, 1)) == KafkaError._UNKNOWN_PARTITION

    cluster.set_leader(SOURCE, 0, 2)

    assert reader.get_watermark_offsets(PLACE, timeout=SECONDS) == (0, 0)
    reader.close()


def test_without_a_refresh_it_does_not(cluster: Cluster, settings: Settings) -> None:
    """Negative control: librdkafka's own consumer."""
    reader = Consumer({**kafka_clients.reader(settings.kafka)})
    reader.list_topics(SOURCE, timeout=SECONDS)
    assert why_not(reader) == KafkaError._UNKNOWN_PARTITION

    cluster.set_leader(SOURCE, 0, 2)

    assert why_not(reader) == KafkaError._UNKNOWN_PARTITION
    reader.close()


def test_a_registry_without_a_leader_is_waited_for(cluster: Cluster, settings: Settings) -> None:
    """It was taken for one that is not there: the relay ended, and asked to be started."""
    topic = names.schemas_topic("app")
    cluster.create_topic(topic)
    cluster.set_leader(topic, 0, NOBODY)
    registry = Registry(settings.kafka, "app")

    with pytest.raises(Unavailable, match="LEADER_NOT_AVAILABLE"):
        registry.catch_up()

    cluster.set_leader(topic, 0, 2)
    registry.catch_up()
    registry.close()


def test_a_relay_hears_of_the_new_leader(cluster: Cluster, settings: Settings) -> None:
    """In the midst of an assignment, where its consumer can be asked for nothing.

    Seen in a campaign: after the end of a broker a relay waited for 200 s for brokers that were
    there, and its whole group with it.
    """
    ends = TopicEnds(AdminClient(kafka_clients.admin(settings.kafka)), SOURCE, SECONDS)
    with pytest.raises(KafkaException):
        ends.bounds([0])

    cluster.set_leader(SOURCE, 0, 2)

    assert ends.bounds([0]) == {0: (0, 0)}


@pytest.mark.parametrize("slice_seconds", [0.5, 60.0], ids=["while it waits", "timed out"])
def test_a_transaction_that_fails_of_it_names_it(
    monkeypatch: pytest.MonkeyPatch, slice_seconds: float
) -> None:
    """Red before: "delivery to app.journal: _MSG_TIMED_OUT", or nothing for two minutes."""
    monkeypatch.setattr(transactional_producer, "SLICE_SECONDS", slice_seconds)
    with Rig("app", 4.0 if slice_seconds > 1 else 60.0) as rig:
        course = Course()
        assert rig.start(course)
        rig.cluster.set_leader(rig.journal, 0, NOBODY)

        rig.transaction(course)

    kind, why, _ = course.failures[0]
    assert kind == "UNKNOWN"
    assert why.endswith("; no broker takes records for app.journal[0]")
    assert course.did == ["replace"]


def test_a_slow_leader_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional_producer, "SLICE_SECONDS", 0.5)
    with Rig("app") as rig:
        course = Course()
        assert rig.start(course)
        rig.cluster.delay(Api.PRODUCE, [1_500, 1_500], LEADER)
        rig.transaction(course)

    assert (course.did, course.failures) == (["commit"], [])


@pytest.mark.parametrize("topics", [3, 25], ids=["one by one", "by one request"])
def test_those_that_nobody_leads_are_found(
    cluster: Cluster, settings: Settings, topics: int
) -> None:
    """Of those that are asked about: SOURCE has no leader either."""
    places = [(f"t{number}", 0) for number in range(topics)]
    for topic, _ in places:
        cluster.create_topic(topic, 2)
    cluster.set_leader("t0", 0, NOBODY)
    cluster.set_leader("t1", 1, NOBODY)
    client = AdminClient(kafka_clients.admin(settings.kafka))
    assert dark_places(client, places, SECONDS, dict) == {("t0", 0)}


def test_the_verifier_and_status_hear_of_all_others(cluster: Cluster, settings: Settings) -> None:
    """One partition of one table's topic blanked the screen; `relay rewind` wants all of them."""
    blocks, journal = names.blocks_topic("app", "d.t"), names.journal_topic("app")
    cluster.create_topic(blocks, 2)
    cluster.set_leader(blocks, 1, NOBODY)
    with contextlib.closing(Reader(settings)) as reader:
        reader.grow()
        there = dict.fromkeys([(journal, 0), (blocks, 0)], 0)
        assert reader.ends() == (there, there)
        assert reader.source_ends() == ({}, {})
        assert {*reader.silent} == {(SOURCE, 0), (blocks, 1)}
        assert "LEADER_NOT_AVAILABLE" in reader.silent[blocks, 1].message
        with pytest.raises(Unavailable, match="LEADER_NOT_AVAILABLE"):
            reader.every_end()

        cluster.set_leader(blocks, 1, 2)

        all_of = {**there, (blocks, 1): 0}
        assert reader.every_end() == (all_of, all_of)
        assert {*reader.silent} == {(SOURCE, 0)}
