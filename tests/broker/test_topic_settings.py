"""Topics on clusters whose defaults and policies are not a development broker's."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from relay import names
from relay.cli import cli
from relay.dev import broker
from relay.dev import stack as dev_stack
from relay.program import java
from tests import reach
from tests.broker.authorized import authorized
from tests.broker.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 2**20
REFUSED = "the brokers refuse settings of a topic"
POLICY = "create.topic.policy.class.name=Hosted\nhosted.most.bytes={most}\n"


@pytest.fixture(scope="module")
def hosted(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the policy's class is, as another part of Java's class path."""
    directory = tmp_path_factory.mktemp("hosted")
    compiler = java.require().resolve().parent / "javac"
    *_, path = broker._java()
    source = Path(__file__).parent / "Hosted.java"
    subprocess.run([compiler, "-cp", path, "-d", directory, source], check=True, timeout=120)
    return str(directory)


@pytest.fixture
def bootstrap(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """Instead of the session's broker: one with these properties."""
    properties: str = request.param
    if "policy" in properties:
        started, classes = broker._java, request.getfixturevalue("hosted")

        def with_policy(*options: str) -> list[str]:
            *command, path = started(*options)
            return [*command, f"{path}:{classes}"]

        monkeypatch.setattr(broker, "_java", with_policy)
    with authorized(tmp_path_factory.mktemp("broker"), properties) as server:
        yield server.bootstrap


def settings(bootstrap: str, topic: str) -> dict[str, str]:
    """The topic's, by name."""
    asked = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_configs([asked])[asked].result(30)
    return {name: entry.value for name, entry in found.items()}


def topics(pipeline: Pipeline) -> tuple[str, ...]:
    """Those of which every record is kept until its time is over."""
    app = pipeline.app
    blocks = names.blocks_topic(app, pipeline.table)
    return blocks, names.journal_topic(app), names.dead_topic(app)


def carried(pipeline: Pipeline) -> str:
    """Rows through a relay; its log."""
    relay = pipeline.start("a")
    pipeline.send(range(20))
    pipeline.until(lambda: pipeline.rows() == pipeline.sent, "all rows")
    relay.send_signal(signal.SIGTERM)
    assert pipeline.end_of(relay) == 0
    return pipeline.log(relay)


@pytest.mark.parametrize("bootstrap", ["log.cleanup.policy=compact\n"], indirect=True)
def test_a_cluster_that_compacts_by_default_keeps_each_record(pipeline: Pipeline) -> None:
    """A compacted topic refuses records without a key, and keeps only the last chunk of a block."""
    said = carried(pipeline)

    own = [settings(pipeline.bootstrap, topic) for topic in topics(pipeline)]
    assert [topic["cleanup.policy"] for topic in own] == ["delete"] * 3
    registry = settings(pipeline.bootstrap, names.schemas_topic(pipeline.app))
    assert registry["cleanup.policy"] == "compact"
    assert REFUSED not in said


@pytest.mark.parametrize(
    ("bootstrap", "given"),
    [
        pytest.param(POLICY.format(most=20 * MIB), 16 * MIB, marks=pytest.mark.long),
        pytest.param(POLICY.format(most=8 * MIB), 8 * MIB, marks=pytest.mark.long),
        (POLICY.format(most=2 * MIB), MIB + 12),  # the broker's default
    ],
    indirect=["bootstrap"],
)
def test_a_cluster_that_bounds_records_gets_topics_within_its_bound(
    pipeline: Pipeline, given: int
) -> None:
    """As hosted ones do, which would otherwise let no relay start."""
    said = carried(pipeline)

    own = [settings(pipeline.bootstrap, topic) for topic in topics(pipeline)]
    assert [int(topic["max.message.bytes"]) for topic in own] == [given] * 3
    assert said.count(REFUSED) > 0


@pytest.mark.long  # 40 s: three brokers
@pytest.mark.servers
def test_topics_have_as_many_copies_as_the_source(app: str, tmp_path: Path) -> None:
    """Which `relay topic create` made with three; nothing is configured."""
    directory = tmp_path / "three"
    try:
        stack = dev_stack.up(directory, brokers=3, progress=lambda _line: None)
        with contextlib.closing(reach.client(stack.clickhouse)) as client:
            client.command("CREATE TABLE t (id Int64, v String) ENGINE = MergeTree ORDER BY id")
        pipeline = Pipeline(stack.bootstrap, stack.clickhouse, app, "default", tmp_path)
        made = CliRunner().invoke(cli, ["topic", "create", str(pipeline.config())])
        assert made.exit_code == 0, made.output
        carried(pipeline)

        for topic in (pipeline.source, *topics(pipeline), names.schemas_topic(app)):
            assert copies(pipeline.bootstrap, topic) == {3}
            assert settings(pipeline.bootstrap, topic)["min.insync.replicas"] == "2"
    finally:
        dev_stack.down(directory)


def copies(bootstrap: str, topic: str) -> set[int]:
    """How many each partition has."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_topics(TopicCollection([topic]))[topic].result(30)
    return {len(partition.replicas) for partition in found.partitions}
