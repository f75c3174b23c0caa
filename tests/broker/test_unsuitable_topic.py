"""A source that is not ours does not look healthy; a neighbour in one that is stops nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.broker.cross_pipeline import CrossPipeline
from tests.broker.pipeline import PARTITIONS, row_batch
from tests.broker.test_wrong_surroundings_end_with_a_clear_error import ended, stop

if TYPE_CHECKING:
    from tests.broker.pipeline import Pipeline

Headers = list[tuple[str, str | bytes | None]]
MANY = 150
FEW = 30
JSON = b'{"id": 1, "v": "a"}'
FIRST = "the first dead letter of this kind"


def fill(
    pipeline: Pipeline, count: int, value: bytes | None, headers: Headers, at: int = 0
) -> None:
    """The same message so often in a partition."""
    producer = Producer({"bootstrap.servers": pipeline.bootstrap, "linger.ms": 100})
    for _ in range(count):
        pipeline.produce(producer, value, at, headers)
    assert producer.flush(30) == 0


@pytest.mark.parametrize(
    ("value", "headers", "parts"),
    [
        (JSON, [], ("it has no header", "looks like JSON")),
        (b"\0\0\0\0\x07\x08\x01", [("id", b"1")], ("'id'", "Confluent's", "schema id")),
        (
            row_batch([1]),
            [("table", b"t")],
            ("header 'table' is 't', a name without its database",),
        ),
        (JSON, [("table", b"nowhere.t")], ("unknown table nowhere.t", "looks like JSON")),
    ],
    ids=["json", "confluent", "no database", "unknown table"],
)
def test_a_topic_of_another_kind_stops_the_first_start_before_anything_is_committed(
    pipeline: Pipeline, value: bytes, headers: Headers, parts: tuple[str, ...]
) -> None:
    """With what its messages look like; a second start says the same."""
    fill(pipeline, MANY, value, headers)
    for _ in range(2):
        status, log = ended(pipeline, pipeline.start("a"))
        assert status == 2, log
        assert f"topic {pipeline.source}" in log
        assert all(part in log for part in parts), log
        assert "source.all_dead" in log
    assert not pipeline.dead()
    assert all(place.offset <= 0 for place in pipeline.committed())


def test_who_says_that_it_may_be_all_dead_gets_dead_letters_and_one_warning(
    pipeline: Pipeline,
) -> None:
    fill(pipeline, MANY, JSON, [])
    fill(pipeline, MANY, None, [("table", pipeline.table.encode())], 1)
    config = pipeline.config()
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("[source]", '[source]\nall_dead = "continue"'), encoding="utf-8")
    process = pipeline.start("a", config)
    pipeline.until(lambda: len(pipeline.dead()) == 2 * MANY, "the dead letters")
    stop(process)
    warnings = [line for line in pipeline.log(process).splitlines() if FIRST in line]
    assert len(warnings) == 2, warnings
    assert all("WARNING" in line for line in warnings)
    (json,) = [line for line in warnings if "JSON" in line]
    assert "table=(none)" in json
    assert f"topic={pipeline.source}" in json
    assert "partition=0" in json
    assert "offset=0" in json
    reasons = {headers["reason"] for _, headers in pipeline.dead() if not headers["table"]}
    assert len(reasons) == 1
    assert "; its value looks like JSON; it has no header" in reasons.pop()


def test_a_few_dead_letters_at_the_start_stop_nobody(pipeline: Pipeline) -> None:
    """They are told, once, and what comes then is taken."""
    fill(pipeline, FEW, JSON, [])
    process = pipeline.start("a")
    pipeline.until(lambda: len(pipeline.dead()) == FEW, "the dead letters")
    pipeline.send(range(10))
    pipeline.exactly_once()
    fill(pipeline, MANY, JSON, [])
    pipeline.until(lambda: len(pipeline.dead()) == FEW + MANY, "the others")
    stop(process)
    assert pipeline.log(process).count(FIRST) == 1


def test_an_app_that_ever_had_a_row_never_stops_for_its_neighbours(pipeline: Pipeline) -> None:
    """Neither while it runs nor at a later start that sees nothing else."""
    process = pipeline.start("a")
    pipeline.send(range(10))
    pipeline.exactly_once()
    stop(process)
    fill(pipeline, 3 * MANY, JSON, [])
    pipeline.start("a")
    pipeline.until(lambda: len(pipeline.dead()) == 3 * MANY, "the dead letters")
    pipeline.send(range(10, 20))
    pipeline.exactly_once()


def test_one_partition_of_dead_letters_is_not_the_whole_source(pipeline: Pipeline) -> None:
    """A good row in another partition, that waits in its buffer, or lies where nobody read yet."""
    fill(pipeline, 10 * MANY, JSON, [])
    pipeline.send(range(3), partition=1)
    config = pipeline.config(f'[block.tables]\n"{pipeline.table}" = {{ max_age_seconds = 300.0 }}')
    process = pipeline.start("a", config)
    pipeline.until(lambda: len(pipeline.dead()) == 10 * MANY, "the dead letters")
    stop(process)
    pipeline.start("a")
    pipeline.exactly_once()


def test_good_rows_of_a_quiet_table_are_no_part_of_an_unsuitable_topic(pipeline: Pipeline) -> None:
    """They are the oldest, wait in their buffer, and are in no sample of the newest messages."""
    pipeline.send(range(3))
    fill(pipeline, 10 * MANY, JSON, [])
    fill(pipeline, MANY, JSON, [], 1)
    config = pipeline.config(f'[block.tables]\n"{pipeline.table}" = {{ max_age_seconds = 300.0 }}')
    process = pipeline.start("a", config)
    pipeline.until(lambda: len(pipeline.dead()) == 11 * MANY, "the dead letters")
    stop(process)
    pipeline.await_markers()
    assert pipeline.rows() == pipeline.sent


def test_rows_that_no_table_of_the_right_name_can_read_stop_it_too(pipeline: Pipeline) -> None:
    """JSON under the right header, in both partitions, of which one may be in its buffer."""
    for partition in range(PARTITIONS):
        fill(pipeline, MANY, JSON, [("table", pipeline.table.encode())], partition)
    status, log = ended(pipeline, pipeline.start("a"))
    assert status == 2, log
    assert "looks like JSON" in log
    assert not pipeline.dead()


def test_a_source_in_another_cluster_is_looked_at_as_well(crossing: CrossPipeline) -> None:
    """There each partition has a transaction of its own; the first of them stops."""
    fill(crossing, MANY, JSON, [])
    fill(crossing, MANY, JSON, [], 1)
    status, log = ended(crossing, crossing.start("a"))
    assert status == 2, log
    assert "looks like JSON" in log
    assert not crossing.dead()


def test_of_several_processes_one_partition_without_a_good_message_ends_none(
    pipeline: Pipeline,
) -> None:
    """The other's messages are good, whether it has committed them yet or not."""
    fill(pipeline, MANY, JSON, [])
    pipeline.send(range(100), partition=1)
    process = pipeline.start("m", arguments=["--processes", "2"])
    pipeline.until(lambda: len(pipeline.dead()) == MANY, "the dead letters")
    pipeline.exactly_once()
    assert process.poll() is None
    assert "none of the first" not in pipeline.log(process)
