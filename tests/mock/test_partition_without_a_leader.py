"""A partition that had no leader for a moment is asked about again as soon as it has one."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from relay import kafka_settings, names
from relay.reader import PartitionReader
from relay.truth import TruthReader
from tests.mock.cluster import Cluster
from tests.mock.rig import SOURCE, _settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relay.settings import Settings
    from relay.topics import Topics

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
    return _settings("app", cluster.bootstrap, 30.0, {})


def has_heard(reader: Consumer) -> None:
    """The reader knows that nobody leads the partition."""
    with pytest.raises(KafkaException) as error:
        reader.get_watermark_offsets(PLACE, timeout=SECONDS)
    assert error.value.args[0].code() == KafkaError._UNKNOWN_PARTITION


@pytest.mark.parametrize("kind", [PartitionReader, Consumer])
def test_a_reader_hears_of_the_new_leader(
    kind: type[Consumer], cluster: Cluster, settings: Settings
) -> None:
    """At the next question. Negative control: librdkafka's own consumer does not."""
    reader = kind({**kafka_settings.reader(settings.kafka)})
    reader.list_topics(SOURCE, timeout=SECONDS)
    has_heard(reader)

    cluster.set_leader(SOURCE, 0, 2)

    if kind is Consumer:
        has_heard(reader)
    else:
        assert reader.get_watermark_offsets(PLACE, timeout=SECONDS) == (0, 0)
    reader.close()


def test_a_relay_hears_of_the_new_leader(cluster: Cluster, settings: Settings) -> None:
    """In the midst of an assignment, where its consumer can be asked for nothing.

    Seen in a campaign: after the end of a broker a relay waited for 200 s for brokers that were
    there, and its whole group with it.
    """
    truth = TruthReader(settings, cast("Topics", None), SECONDS)
    with pytest.raises(KafkaException):
        truth._bounds([0])

    cluster.set_leader(SOURCE, 0, 2)

    assert truth._bounds([0]) == {0: (0, 0)}
    truth.close()
