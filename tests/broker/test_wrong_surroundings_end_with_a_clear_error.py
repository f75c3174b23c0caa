"""What a person has to mend ends the relay with a documented status and no stack trace."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.broker.pipeline import PARTITIONS, wait_until

if TYPE_CHECKING:
    import subprocess

    from tests.broker.pipeline import Pipeline


def ended(pipeline: Pipeline, process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Status and log of a relay that ends by itself."""
    wait_until(lambda: process.poll() is not None, "the end of the relay", 90)
    log = pipeline.log(process)
    assert "Traceback" not in log
    assert "next:" in log
    return process.returncode, log


def ran_once(pipeline: Pipeline) -> None:
    """A relay that committed some rows and stopped as asked."""
    process = pipeline.start("a")
    pipeline.send(range(10))
    pipeline.send(range(10, 20), partition=1)
    wait_until(lambda: sum(pipeline.rows().values()) == 20, "rows")
    process.send_signal(signal.SIGTERM)
    assert process.wait(15) == 0


def test_sigterm_leaves_within_seconds_with_status_0(pipeline: Pipeline) -> None:
    """What is buffered is sealed first: floor = position."""
    process = pipeline.start("a")
    pipeline.send(range(10))
    wait_until(lambda: sum(pipeline.rows().values()) == 10, "rows")
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)

    assert process.wait(15) == 0
    assert time.monotonic() - begun < 10
    pipeline.exactly_once()


def test_a_source_topic_that_is_not_there(pipeline: Pipeline) -> None:
    """Status 5, and its name."""
    pipeline.delete_source()

    status, log = ended(pipeline, pipeline.start("a"))

    assert status == 5
    assert pipeline.source in log


def test_a_source_topic_deleted_and_made_anew(pipeline: Pipeline) -> None:
    """Status 6, and both topic ids; nothing of the new topic is read."""
    ran_once(pipeline)
    pipeline.delete_source()
    pipeline.create_source()

    status, log = ended(pipeline, pipeline.start("a"))

    assert status == 6
    assert "topic id changed from" in log


def test_an_offset_moved_by_a_tool(pipeline: Pipeline) -> None:
    """Status 6: neither the offset nor the journal is believed alone."""
    ran_once(pipeline)
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    moved = [TopicPartition(pipeline.source, p, 3) for p in range(PARTITIONS)]
    group = f"{pipeline.app}.relay"
    request = ConsumerGroupTopicPartitions(group, moved)

    def alter() -> bool:
        """The broker refuses while the static member's session lasts."""
        try:
            answer = admin.alter_consumer_group_offsets([request])[group].result(30)
        except KafkaException:
            return False
        return not any(place.error for place in answer.topic_partitions)

    wait_until(alter, "the group is empty")
    status, log = ended(pipeline, pipeline.start("a"))

    assert status == 6
    assert "moved the group's offsets" in log


def test_a_first_start_that_nobody_decided(pipeline: Pipeline) -> None:
    """Status 2, and the setting."""
    config = pipeline.config()
    text = config.read_text(encoding="utf-8").replace('start = "earliest"\n', "")
    config.write_text(text, encoding="utf-8")

    status, log = ended(pipeline, pipeline.start("a", config))

    assert status == 2
    assert "source.start" in log


def test_no_broker_at_the_address(pipeline: Pipeline) -> None:
    """Waits as long as it was told, saying so; then status 4."""
    config = pipeline.config()
    text = config.read_text(encoding="utf-8").replace(pipeline.bootstrap, "127.0.0.1:1")
    config.write_text(text, encoding="utf-8")

    status, log = ended(pipeline, pipeline.start("a", config))

    assert status == 4
    assert "waiting" in log
