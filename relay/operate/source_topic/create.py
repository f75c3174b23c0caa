"""Creates the source topic if it does not exist, and waits until the brokers list it.

Receives the app's settings and what a person asked for; gives what `plan` decided, done.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from confluent_kafka import KafkaError, TopicCollection
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # not in __all__

from relay import names
from relay.config.settings import Settings
from relay.kafka.admin import ABSENT, REQUEST_SECONDS, Admin, until_listed
from relay.operate.source_topic.plan import Cluster, Decided, Wanted, decide


def create(settings: Settings, wanted: Wanted, *, dry_run: bool = False) -> Decided:
    """Make the source topic, if it is not there; in a dry run the brokers only check that they may.

    Returns:
        The topic that was made, or that was there.

    Raises:
        ConfigError, ContractBroken: as `plan.decide`.
        Refused: the brokers refuse it.
        Unavailable: they do not answer.
    """
    brokers = Admin(settings.source_kafka)
    decided = decide(wanted, _read_cluster(settings, wanted.topic, brokers))
    if not decided.made:
        return decided
    new = NewTopic(
        wanted.topic,
        num_partitions=decided.partitions,
        replication_factor=decided.replication,
        config=dict(decided.settings),
    )
    brokers.answer(
        f"create topic {wanted.topic}",
        brokers.client.create_topics([new], request_timeout=REQUEST_SECONDS, validate_only=dry_run)[
            wanted.topic
        ],
        f"if a right is missing, grant Create on topic {wanted.topic} to this user",
        fine={KafkaError.TOPIC_ALREADY_EXISTS},
    )
    if dry_run:
        return decided
    # Of two that make it at one time the later one finds it there, perhaps otherwise.
    listed = until_listed(wanted.topic, lambda: _listed(settings, wanted.topic, brokers))
    there = decide(wanted, listed)
    return replace(there, made=True, settings=decided.settings, notes=decided.notes)


def _listed(settings: Settings, topic: str, brokers: Admin) -> Cluster | None:
    cluster = _read_cluster(settings, topic, brokers)
    return None if cluster.partitions is None else cluster


def _read_cluster(settings: Settings, topic: str, brokers: Admin) -> Cluster:
    cluster = brokers.answer(
        "describe the cluster",
        brokers.client.describe_cluster(request_timeout=REQUEST_SECONDS),
        "grant Describe on the cluster to this user",
    )
    source = _describe(brokers, topic)
    own = Admin(settings.kafka) if settings.crosses else brokers
    journal = _describe(own, names.journal_topic(settings.app))
    return Cluster(
        brokers=len(cluster.nodes),
        partitions=None if source is None else len(source.partitions),
        replication=0 if source is None else min(len(p.replicas) for p in source.partitions),
        journal=None if journal is None else len(journal.partitions),
    )


def _describe(brokers: Admin, topic: str) -> Any:
    """The topic; None where there is none."""
    return brokers.answer(
        f"describe topic {topic}",
        brokers.client.describe_topics(TopicCollection([topic]), request_timeout=REQUEST_SECONDS)[
            topic
        ],
        f"grant Describe on topic {topic} to this user",
        fine=ABSENT,
    )
