"""What a person has to mend ends the relay with a documented status and no stack trace."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented, not in __all__
    AdminClient,
    NewTopic,
)

from tests.broker.pipeline import (
    PARTITIONS,
    WAIT_SECONDS,
    create_topics,
    delete_topic,
    wait_until,
)

if TYPE_CHECKING:
    import subprocess

    from tests.broker.pipeline import Pipeline

NEVER = -1001
"""The floor of a partition whose group has no offset."""


def ended(pipeline: Pipeline, process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Status and log of a relay that ends by itself, and has not gone on before."""
    before = pipeline.rows()
    wait_until(
        lambda: process.poll() is not None or pipeline.rows() != before,
        "the end of the relay",
        pipeline.end_seconds,
    )
    assert pipeline.rows() == before, "the relay read on"
    log = pipeline.log(process)
    assert "Traceback" not in log
    assert "next:" in log
    return process.returncode, log


def ran_once(pipeline: Pipeline) -> None:
    """A relay that committed ten rows of each partition and stopped as asked."""
    process = pipeline.start("a")
    pipeline.send(range(10))
    pipeline.send(range(10, 20), partition=1)
    pipeline.until(lambda: sum(pipeline.rows().values()) == 20, "rows")
    stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_SECONDS) == 0


def place_group(pipeline: Pipeline, places: list[TopicPartition]) -> None:
    """What tools do to a group's offsets; sent in a transaction, no session is in the way."""
    servers = {"bootstrap.servers": pipeline.bootstrap}
    group = Consumer({**servers, "group.id": f"{pipeline.app}.relay"}).consumer_group_metadata()
    tool = Producer({**servers, "transactional.id": f"{pipeline.app}.tool"})
    tool.init_transactions(30)
    tool.begin_transaction()
    tool.send_offsets_to_transaction(places, group, 30)
    tool.commit_transaction(30)
    wait_until(
        lambda: [p.offset for p in pipeline.committed()] == [p.offset for p in places], "the move"
    )


def test_sigterm_leaves_within_seconds_with_status_0(pipeline: Pipeline) -> None:
    """What is buffered is sealed first: floor = position."""
    config = pipeline.config(f'[block.tables]\n"{pipeline.table}" = {{ max_age_seconds = 300.0 }}')
    process = pipeline.start("a", config)
    pipeline.send(range(10))
    producer = Producer({"bootstrap.servers": pipeline.bootstrap})
    pipeline.produce(producer, b"no table", 0, [])
    assert producer.flush(30) == 0
    # Its dead letter is committed, so what came before it in the partition is buffered.
    pipeline.until(lambda: len(pipeline.dead()) == 1, "the dead letter")
    assert not pipeline.rows()
    process.send_signal(signal.SIGTERM)

    assert pipeline.end_of(process) == 0
    pipeline.await_markers()
    assert pipeline.rows() == pipeline.sent, "what was buffered is not sealed"
    assert pipeline.floor(0) == 11
    pipeline.exactly_once()


def test_a_source_topic_that_is_not_there(pipeline: Pipeline) -> None:
    """Status 5, and its name."""
    pipeline.delete_source()

    status, log = ended(pipeline, pipeline.start("a"))

    assert status == 5
    assert pipeline.source in log


def test_fewer_brokers_than_replicas(pipeline: Pipeline) -> None:
    """One may be away for a moment: waited for, as long as for a server; then status 4."""
    config = pipeline.config(wait_for_servers_seconds=5.0)
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("[kafka]\n", "[kafka]\nreplication = 3\n"), encoding="utf-8")

    status, log = ended(pipeline, pipeline.start("a", config))

    assert status == 4
    assert "a server is unavailable, waiting" in log
    assert "INVALID_REPLICATION_FACTOR" in log
    assert "start the brokers that are away, or correct kafka.replication" in log


def test_a_source_topic_deleted_and_made_anew(pipeline: Pipeline) -> None:
    """Status 6, and both topic ids; nothing of the new topic is read."""
    ran_once(pipeline)
    pipeline.delete_source()
    pipeline.create_source()
    pipeline.send(range(100, 105))

    status, log = ended(pipeline, pipeline.start("a"))

    assert status == 6
    assert "topic id changed from" in log


@pytest.mark.parametrize(
    "partitions", [pytest.param(PARTITIONS, marks=pytest.mark.long), PARTITIONS + 1]
)
def test_another_source_topic(pipeline: Pipeline, partitions: int) -> None:
    """Status 2 and both names, of `relay accept` as well; with the old one rows go on, once each.

    A journal that had grown with a wider topic would be too wide for the right one for ever.
    """
    ran_once(pipeline)
    other, servers = f"{pipeline.app}.other", {"bootstrap.servers": pipeline.bootstrap}
    create_topics(AdminClient(servers), NewTopic(other, partitions, 1))
    right, wrong = pipeline.config(), pipeline.config()
    text = right.read_text(encoding="utf-8").replace(f'"{pipeline.source}"', f'"{other}"')
    wrong.write_text(text, encoding="utf-8")

    status, log = ended(pipeline, pipeline.start("a", wrong))

    said = f"the journal is of topic '{pipeline.source}', and source.topic is '{other}'"
    assert (status, said in log) == (2, True), log
    accept = pipeline.watch("accept", wrong, "--run", "--why", "a test")
    assert pipeline.end_of(accept) == 2
    assert said in pipeline.log(accept)
    pipeline.processes.clear()  # what ended with status 2 was meant to
    pipeline.start("a", right)
    pipeline.send(range(20, 30))
    pipeline.exactly_once()


def test_a_source_topic_made_anew_and_the_offsets_restored(pipeline: Pipeline) -> None:
    """Status 6: the new topic's first messages would be taken for those that were read."""
    ran_once(pipeline)
    places = pipeline.committed()
    pipeline.delete_source()
    pipeline.create_source()
    pipeline.send(range(100, 115))
    pipeline.send(range(200, 215), partition=1)
    place_group(pipeline, places)

    status, log = ended(pipeline, pipeline.start("a"))

    assert status == 6
    assert "topic id changed from" in log


def test_an_offset_moved_by_a_tool(pipeline: Pipeline) -> None:
    """Status 6: neither the offset nor the journal is believed alone."""
    ran_once(pipeline)
    place_group(pipeline, [TopicPartition(pipeline.source, p, 3) for p in range(PARTITIONS)])

    status, log = ended(pipeline, pipeline.start("a"))

    assert status == 6
    assert "moved the group's offsets" in log


def test_a_journal_that_was_deleted(pipeline: Pipeline) -> None:
    """Status 6 at once: the record that the group's offset names is not coming any more."""
    ran_once(pipeline)
    journal = [TopicPartition(f"{pipeline.app}.journal", p, -1) for p in range(PARTITIONS)]
    client = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    for future in client.delete_records(journal).values():
        future.result(30)

    process = pipeline.start("a")
    wait_until(lambda: process.poll() is not None, "the end of the relay", pipeline.end_seconds)

    assert process.returncode == 6
    assert "the journal has no record of this partition there" in pipeline.log(process)


@pytest.mark.parametrize("offset", [0, pytest.param(7, marks=pytest.mark.long)])
def test_a_journal_that_was_made_anew(pipeline: Pipeline, offset: int) -> None:
    """Status 6, also where the group names offset 0, which an empty partition could still get."""
    ran_once(pipeline)
    client = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    delete_topic(client, f"{pipeline.app}.journal")
    metadata = json.dumps({"n": 1, "journal": offset})
    places = [TopicPartition(pipeline.source, p, 10, metadata) for p in range(PARTITIONS)]
    place_group(pipeline, places)

    process = pipeline.start("a")
    wait_until(lambda: process.poll() is not None, "the end of the relay", pipeline.end_seconds)

    assert process.returncode == 6
    assert "the journal has no record of this partition there" in pipeline.log(process)


def test_a_first_start_that_nobody_decided(pipeline: Pipeline) -> None:
    """Status 2, and the setting; no floor is committed."""
    pipeline.send(range(10))
    config = pipeline.config()
    text = config.read_text(encoding="utf-8").replace('start = "earliest"\n', "")
    config.write_text(text, encoding="utf-8")

    process = pipeline.start("a", config)
    wait_until(
        lambda: process.poll() is not None or pipeline.floor(0) != NEVER,
        "the end of the relay",
        pipeline.end_seconds,
    )
    assert pipeline.floor(0) == NEVER, "the relay chose where to begin"
    status, log = ended(pipeline, process)

    assert status == 2
    assert "source.start" in log


def test_no_broker_at_the_address(pipeline: Pipeline) -> None:
    """Waits as long as it was told, saying so; then status 4."""
    config = pipeline.config(wait_for_servers_seconds=3.0)
    text = config.read_text(encoding="utf-8").replace(pipeline.bootstrap, "127.0.0.1:1")
    config.write_text(text, encoding="utf-8")

    status, log = ended(pipeline, pipeline.start("a", config))

    assert status == 4
    # After 0.1, 0.6, 1.6 and 3.6 s at the earliest: the fourth try is the last.
    assert 1 <= log.count("a server is unavailable, waiting") <= 3
