"""A source partition that ends in what no reader is given: a transaction's marker, aborted records.

Retention deletes them as it deletes messages, and no message is lost with them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from relay.errors import ContractBroken
from tests.broker.pipeline import is_stable, row_batch, wait_until
from tests.broker.test_wrong_surroundings_end_with_a_clear_error import ended, stop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.broker.pipeline import Pipeline

END = -1
"""In delete_records: the whole log."""


def transaction(pipeline: Pipeline, ids: Sequence[int], partition: int, *, commit: bool) -> None:
    """Rows with these ids, one a message, and behind them the transaction's marker."""
    servers = {"bootstrap.servers": pipeline.source_bootstrap}
    producer = Producer({**servers, "transactional.id": f"{pipeline.app}.test"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for one in ids:
        pipeline.produce(producer, row_batch([one]), partition)
    assert producer.flush(30) == 0
    if commit:
        producer.commit_transaction(30)
        pipeline.sent.update(ids)
    else:
        producer.abort_transaction(30)


def retention_passes(pipeline: Pipeline) -> None:
    """Both partitions begin where they end, behind the markers of what was committed."""
    admin = AdminClient({"bootstrap.servers": pipeline.source_bootstrap})
    places = [TopicPartition(pipeline.source, index, END) for index in range(pipeline.partitions)]
    wait_until(lambda: is_stable(admin, *places), "the markers of the transactions")
    for done in admin.delete_records(places).values():
        done.result(30)


def verify(config: Path) -> tuple[int, str]:
    command = [Path(sys.executable).parent / "relay", "verify", config, "--once"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    return said.returncode, said.stdout + said.stderr


def floors(pipeline: Pipeline) -> list[int]:
    """Of the journal, which holds in either kind of pipeline."""
    return [records[-1].floor if records else 0 for records in pipeline.journal().values()]


@pytest.mark.servers
@pytest.mark.parametrize("kind", ["pipeline", "crossing"])
def test_no_message_is_lost_with_a_transactions_marker(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """The relay and the verifier go on: the floor is behind it. Red before: status 6 for both.

    Partition 0 ends in an aborted transaction behind one that was read, 1 has nothing else.
    """
    pipeline: Pipeline = request.getfixturevalue(kind)
    config = pipeline.config(flush_point_interval_seconds=1.0)
    transaction(pipeline, range(10), 0, commit=True)
    transaction(pipeline, range(100, 130), 0, commit=False)
    transaction(pipeline, range(200, 230), 1, commit=False)
    relay = pipeline.start("a", config)
    pipeline.exactly_once()
    pipeline.until(lambda: floors(pipeline) == [42, 31], "floors at the ends")
    relay.kill()  # no last record
    relay.wait(30)
    retention_passes(pipeline)

    status, said = verify(config)
    assert status == 0, said
    relay = pipeline.start("a", config)
    transaction(pipeline, range(300, 310), 0, commit=True)
    transaction(pipeline, range(400, 410), 1, commit=True)
    pipeline.exactly_once()
    stop(relay)
    status, said = verify(config)
    assert status == 0, said


def test_messages_behind_a_marker_are_lost(pipeline: Pipeline) -> None:
    """Only what was read is passed: status 6, as without transactions."""
    config = pipeline.config(flush_point_interval_seconds=1.0)
    transaction(pipeline, range(10), 0, commit=True)
    relay = pipeline.start("a", config)
    pipeline.until(lambda: floors(pipeline) == [11, 0], "the floor at the end")
    stop(relay)
    transaction(pipeline, range(100, 110), 0, commit=True)
    retention_passes(pipeline)

    status, log = ended(pipeline, pipeline.start("a", config))

    assert status == ContractBroken.exit_code
    assert "offsets 11 to 21 were never read and are gone" in log
    assert verify(config)[0] == ContractBroken.exit_code


def test_an_end_in_front_of_an_open_transaction(pipeline: Pipeline) -> None:
    """What it commits later is read: the end is that of a read_committed reader."""
    config = pipeline.config(flush_point_interval_seconds=1.0)
    servers = {"bootstrap.servers": pipeline.source_bootstrap}
    late = Producer(
        {
            **servers,
            "transactional.id": f"{pipeline.app}.late",
            "transaction.timeout.ms": 300_000,  # the test ends it, not the broker
        }
    )
    late.init_transactions(30)
    transaction(pipeline, range(10), 0, commit=True)
    late.begin_transaction()
    pipeline.produce(late, row_batch([500]), 0)  # offset 11
    assert late.flush(30) == 0
    transaction(pipeline, range(100, 110), 0, commit=True)
    relay = pipeline.start("a", config)
    pipeline.until(lambda: floors(pipeline) == [11, 0], "the floor at the last stable offset")
    relay.kill()
    relay.wait(30)
    pipeline.start("a", config)
    late.commit_transaction(30)
    pipeline.sent.update([500])
    pipeline.exactly_once()
    pipeline.until(lambda: floors(pipeline) == [24, 0], "the floor at the end")
