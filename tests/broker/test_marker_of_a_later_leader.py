"""A marker that another leader epoch wrote than the messages in front of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from relay.dev import broker
from tests.broker.own_broker import bootstrap, own_broker  # noqa: F401 - one is a fixture
from tests.broker.pipeline import row_batch
from tests.broker.test_wrong_surroundings_end_with_a_clear_error import stop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.broker.pipeline import Pipeline


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    """Directory of a broker that the test kills and starts again."""
    with own_broker(tmp_path) as directory:
        yield directory


@pytest.mark.long  # 33 s: three brokers
def test_a_floor_behind_it_is_no_log_that_lost_its_end(pipeline: Pipeline, own: Path) -> None:
    """The epoch that is committed with the floor reaches it, so that the next relay begins there.

    With the messages' epoch the leader would say that the log was cut off in front of the marker.
    """
    config = pipeline.config(flush_point_interval_seconds=1.0)
    servers = {"bootstrap.servers": pipeline.bootstrap}
    producer = Producer({**servers, "transactional.id": f"{pipeline.app}.test"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for one in range(10):
        pipeline.produce(producer, row_batch([one]), 0)
    assert producer.flush(30) == 0
    broker.kill(own, 0)
    broker.start(own, 0)
    producer.commit_transaction(60)
    pipeline.sent.update(range(10))
    relay = pipeline.start("a", config)
    pipeline.until(lambda: pipeline.floor(0) == 11, "the floor behind the marker")
    [head, _] = pipeline.committed()
    assert head.leader_epoch > epoch_of_first(pipeline), "one leader epoch wrote all"
    stop(relay)

    pipeline.start("a", config)
    pipeline.send(range(10, 20))
    pipeline.exactly_once()


def epoch_of_first(pipeline: Pipeline) -> int:
    """The leader epoch of the first message of partition 0."""
    servers = {"bootstrap.servers": pipeline.bootstrap}
    reader = Consumer({**servers, "group.id": f"{pipeline.app}.epochs"})
    reader.assign([TopicPartition(pipeline.source, 0, 0)])
    message = reader.poll(30)
    reader.close()
    assert message is not None
    epoch = message.leader_epoch()
    assert epoch is not None
    return epoch
