"""Brokers that create a topic when somebody asks for it, as is Kafka's default: nothing here asks.

They would make it with one partition, one copy and settings of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient

from relay import names
from relay.config import kafka_clients
from relay.config.settings import Kafka
from relay.errors import RelayError
from relay.produce.row_producer import RowProducer
from relay.schema.evolution import ColumnDef
from tests.broker.own_broker import bootstrap, own_broker  # noqa: F401 - one is a fixture
from tests.broker.pipeline import wait_until
from tests.broker.test_topics_change_under_way import (
    admin,  # noqa: F401 - a fixture
    deleted_in_a_transaction,
    topics,
)
from tests.produce.codecs import codec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.broker.pipeline import Pipeline

pytestmark = pytest.mark.long  # 40 s: a broker of its own

CODEC = codec(ColumnDef("n", "Int32"))


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Directory of a broker that creates topics."""
    parent = tmp_path_factory.mktemp("creating")
    with own_broker(parent, "auto.create.topics.enable=true\n") as directory:
        yield directory


def test_a_question_of_the_admin_client(app: str, bootstrap: str) -> None:  # noqa: F811 - the fixture
    """The control: the same question of a client with librdkafka's defaults makes the topic."""
    ours = AdminClient(kafka_clients.admin(Kafka(bootstrap=bootstrap)))
    others = AdminClient({"bootstrap.servers": bootstrap})
    mine, theirs = f"{app}.mine", f"{app}.theirs"

    assert ours.list_topics(mine, 10).topics[mine].error is not None
    others.list_topics(theirs, 10)
    wait_until(lambda: theirs in topics(others), "the control's topic")

    assert mine not in topics(others)


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [("status", 0, "no journal yet"), ("verify", 2, "there is no topic {}.journal")],
)
def test_a_command_before_the_first_relay(
    pipeline: Pipeline, command: str, status: int, said: str
) -> None:
    """There is no journal, and the question makes none."""
    asked = pipeline.watch(command, pipeline.config())

    assert asked.wait(60) == status, pipeline.log(asked)
    assert said.format(pipeline.app) in pipeline.log(asked)
    found = topics(AdminClient({"bootstrap.servers": pipeline.bootstrap}))
    assert {name for name in found if name.startswith(pipeline.app)} == {pipeline.source}


@pytest.mark.parametrize("kind", ["blocks", "journal"])
def test_a_topic_deleted_under_a_running_relay(
    pipeline: Pipeline,
    admin: AdminClient,  # noqa: F811 - the fixture
    kind: str,
) -> None:
    """Status 5 and its name, as where brokers create none."""
    of_table = names.blocks_topic(pipeline.app, pipeline.table)
    topic = of_table if kind == "blocks" else names.journal_topic(pipeline.app)
    deleted_in_a_transaction(pipeline, admin, topic)


def test_rows_for_a_source_that_is_not_there(
    app: str,
    bootstrap: str,  # noqa: F811 - the fixture
    admin: AdminClient,  # noqa: F811 - the fixture
) -> None:
    """They are not delivered; whoever wants the source makes it, as wide and safe as they want."""
    source = f"{app}.source"
    rows = pa.record_batch({"n": pa.array([1], pa.int32())})
    kafka = Kafka(bootstrap=bootstrap)

    with (
        pytest.raises(RelayError, match=f"not delivered to {source}"),
        RowProducer(kafka, source, lambda _: CODEC, delivery_timeout_seconds=3.0) as producer,
    ):
        producer.write_arrow("d.t", rows)

    assert source not in topics(admin)
