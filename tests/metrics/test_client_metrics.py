"""librdkafka's statistics: what this version really gives, and what is made of it."""

from __future__ import annotations

import copy
import json
import uuid
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from relay.operate.metrics import client_definitions as listed
from relay.operate.metrics.statistics import CONSUMER, PRODUCER, Statistics
from relay.program.metric import COUNTER, exposition
from tests.broker.pipeline import wait_until
from tests.metrics.rig import TOPIC, Rig, consumer_statistics
from tests.mock.cluster import Cluster

Given = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def heard() -> Given:
    """The last statistics of a consumer and a transactional producer that did some work."""
    found: Given = {}

    def client(name: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": cluster.bootstrap,
            "statistics.interval.ms": 100,
            "stats_cb": lambda text: found.__setitem__(name, json.loads(text)),
        }

    with Cluster(1) as cluster:
        cluster.create_topic(TOPIC)
        producer = Producer({**client(PRODUCER), "transactional.id": str(uuid.uuid4())})
        producer.init_transactions(30)
        producer.begin_transaction()
        consumer = Consumer({**client(CONSUMER), "group.id": "g"})
        consumer.assign([TopicPartition(TOPIC, 0, 0)])

        def whole() -> bool:
            producer.produce(TOPIC, b"value", partition=0)
            producer.poll(0.05)
            consumer.consume(100, 0.05)
            fetched = found.get(CONSUMER, {}).get("rxmsgs", 0)
            sent = found.get(PRODUCER, {}).get("topics", {}).get(TOPIC, {})
            group = found.get(CONSUMER, {}).get("cgrp", {}).get("state")
            return bool(fetched and group == "up" and sent.get("batchcnt", {}).get("cnt"))

        wait_until(whole, "statistics of both clients after some records")
        given = dict(found)  # what comes while they close has no partition any more
        producer.abort_transaction(30)
        consumer.close()
    return given


@pytest.fixture
def rig(heard: Given) -> Rig:
    made = Rig()
    for client, given in heard.items():
        made.hear(client, given)
    return made


def test_this_librdkafka_has_every_statistic_that_is_listed(rig: Rig) -> None:
    """Each metric of the clients has a sample."""
    names = {name for name, _ in rig.samples()}
    assert [one.name for one in listed.CLIENTS if one.name not in names] == []


def changed(value: Any) -> Any:
    """Every number, state and flag of a statistics text as another, its places kept."""
    kept = {"type", "name", "nodeid", "source", "partition", "desired"}
    if isinstance(value, dict):
        return {
            k: v if k in kept and not isinstance(v, dict) else changed(v) for k, v in value.items()
        }
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 7
    swapped = {"UP": "DOWN", "active": "none", "up": "init", "steady": "init", "init": "steady"}
    return swapped.get(value, value)


def test_every_metric_of_the_clients_follows_its_statistic(rig: Rig, heard: Given) -> None:
    """Statistics that say other things make other values, each of them."""
    before = rig.samples()
    rig.now += 1
    for client, given in heard.items():
        rig.hear(client, changed(copy.deepcopy(given)))
    rig.now += 2
    moved = {key[0] for key, value in rig.samples().items() if before.get(key) != value}
    assert [one.name for one in listed.CLIENTS if one.name not in moved] == []


def test_values_are_in_their_units(rig: Rig, heard: Given) -> None:
    """Microseconds become seconds; states become 1 or 0; counters keep their value."""
    producer, consumer = heard[PRODUCER], heard[CONSUMER]
    assert rig.value("relay_kafka_client_age_seconds", client=PRODUCER) == producer["age"] * 1e-6
    assert rig.value("relay_kafka_requests_total", client=CONSUMER) == consumer["tx"]
    (broker,) = (b for b in producer["brokers"].values() if b["nodeid"] == 1)
    labels = {"client": PRODUCER, "broker": 1}
    assert rig.value("relay_kafka_broker_up", **labels) == (broker["state"] == "UP")
    average = broker["rtt"]["avg"] * 1e-6
    assert rig.value("relay_kafka_broker_rtt_seconds", **labels, of="avg") == average
    assert rig.value("relay_kafka_partition_fetching", client=CONSUMER, partition=0) == 1
    rig.now += 4
    assert rig.value("relay_kafka_statistics_seconds", client=CONSUMER) == 4


def test_a_broker_of_which_nothing_is_heard_is_not_up(rig: Rig) -> None:
    """Through an outage the last statistics stay; what they said of connections does not."""
    labels = {"client": CONSUMER, "broker": 1}
    assert rig.value("relay_kafka_broker_up", **labels) == 1
    rig.now += 29
    assert rig.value("relay_kafka_broker_up", **labels) == 1
    rig.now += 2
    assert rig.value("relay_kafka_broker_up", **labels) == 0
    assert rig.value("relay_kafka_statistics_seconds", client=CONSUMER) == 31


def test_a_client_that_is_not_polled_is_not_asked_whether_brokers_are_there(
    rig: Rig, heard: Given
) -> None:
    """Inside a transaction the consumer is not, and its "up" of before kept a relay ready."""
    away = copy.deepcopy(heard[PRODUCER])
    for broker in away["brokers"].values():
        broker["state"] = "TRY_CONNECT"
    rig.now += 29
    rig.hear(PRODUCER, away)
    assert rig.statistics.connected() is True
    rig.now += 2
    assert rig.statistics.connected() is False
    rig.now += 600
    assert rig.statistics.connected() is True, "nothing is heard of any: as they said last"


def test_nor_does_what_they_said_of_group_and_partitions(rig: Rig, heard: Given) -> None:
    """Siblings of a broker's: a coordinator that answered a minute ago proves nothing now."""
    told = copy.deepcopy(heard[CONSUMER])
    told["cgrp"]["join_state"] = "steady"
    rig.hear(CONSUMER, told)
    names = [f"relay_kafka_{one}" for one in ("group_up", "group_steady", "partition_fetching")]
    labels: dict[str, dict[str, Any]] = {one: {"client": CONSUMER} for one in names}
    labels["relay_kafka_partition_fetching"]["partition"] = 0
    assert [rig.value(one, **labels[one]) for one in names] == [1, 1, 1]
    rig.now += 31
    assert [rig.value(one, **labels[one]) for one in names] == [0, 0, 0]


def test_statistics_that_come_seldom_are_not_old_so_soon(rig: Rig, heard: Given) -> None:
    """As statistics.interval.ms of kafka.client may have it."""
    labels = {"client": PRODUCER, "broker": 1}
    up = rig.value("relay_kafka_broker_up", **labels)
    rig.now += 60
    rig.hear(PRODUCER, heard[PRODUCER])
    rig.now += 150
    assert rig.value("relay_kafka_broker_up", **labels) == up == 1
    rig.now += 31
    assert rig.value("relay_kafka_broker_up", **labels) == 0


def test_totals_are_counters() -> None:
    """What ends in _total, and nothing else."""
    for one in listed.CLIENTS:
        assert one.name.endswith("_total") == (one.kind == COUNTER), one.name


def test_what_this_version_lacks_is_left_out(rig: Rig) -> None:
    """Statistics with nothing in them are no error: another librdkafka names them otherwise."""
    for client in (CONSUMER, PRODUCER):
        rig.hear(client, {"type": client})
    status, _, _ = exposition(rig.registry, "shop")
    assert status == 200
    assert rig.statistics.readable() == {}
    assert rig.statistics.connected() is False


def test_messages_wait_since_they_were_first_seen_to() -> None:
    """Not since the last one came: an idle partition that gets a message is not stuck."""
    now = [100.0]
    statistics = Statistics(TOPIC, lambda: now[0])

    def hear(**given: Any) -> float | None:
        now[0] += 10
        statistics.take(CONSUMER, json.dumps(consumer_statistics(**given)))
        return statistics.readable()[0].waiting_since

    assert hear(end=5, fetched=5) is None
    assert hear(end=9, fetched=5) == 120
    assert hear(end=9, fetched=9, queued=1) == 120
    assert hear(end=9, fetched=9) is None
    assert hear(end=9, fetched=5, state="DOWN") is None, "nobody could read them"
    assert hear(end=9, fetched=5) == 160


def test_a_page_of_metrics_reads_as_prometheus_does(rig: Rig) -> None:
    """The text parses, with help for each."""
    _, kind, body = exposition(rig.registry, "shop")
    assert kind.startswith("text/plain")
    families = list(text_string_to_metric_families(body.decode()))
    assert len(families) > 100
    assert [family.name for family in families if not family.documentation] == []
    apps = {one.labels["app"] for family in families for one in family.samples}
    assert apps == {"shop"}, "each of them says whose it is"
