"""`relay doctor --sample` on a real topic: what the relay would make of it, and nothing changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from relay.operate.doctor.judge.sample import MOST, OTHERS, tallied
from relay.schema.dead_reason import DeadKind, DeadReason
from tests.broker.conftest import pipeline  # noqa: F401 - a fixture
from tests.broker.pipeline import WAIT_SECONDS, Pipeline, row_batch
from tests.doctor.test_live import relay_doctor

if TYPE_CHECKING:
    from pathlib import Path

    from clickhouse_connect.driver.client import Client


def sampled(config: Path, wanted: int) -> tuple[int, dict[str, Any], set[str]]:
    """Exit status, what was seen by table, and codes of findings about the sample."""
    status, output = relay_doctor(config, "--json", "--sample", str(wanted))
    lines = [json.loads(line) for line in output.splitlines()]
    seen = {line["sample"]["table"]: line["sample"] for line in lines if "sample" in line}
    codes = {line["finding"]["code"] for line in lines if "finding" in line}
    return status, seen, {code for code in codes if code.startswith("sample")}


@pytest.mark.long  # 34 s
def test_each_table_is_told_with_what_is_wrong_and_where(
    pipeline: Pipeline,  # noqa: F811
    client: Client,
) -> None:
    """Before the first start: no topic, no group and no schema comes of it. After it, the same."""
    client.command(f"CREATE TABLE {pipeline.table}_narrow (id Int8) ENGINE = Memory")
    config = pipeline.config()
    assert sampled(config, 10) == (8, {}, {"sample-empty"})

    pipeline.send(range(4))
    producer = Producer({"bootstrap.servers": pipeline.bootstrap})
    narrow = f"{pipeline.table}_narrow".encode()
    pipeline.produce(producer, b"\x0a\x02\x08\x05", 1, [("table", narrow)])
    pipeline.produce(producer, b"\x0a\x03\x08\xac\x02", 1, [("table", narrow)])
    pipeline.produce(producer, b'{"id": 1}', 1, [("kind", b"x")])
    pipeline.produce(producer, row_batch([1]), 1, [("table", b"nowhere.t")])
    pipeline.produce(producer, None, 1)
    assert producer.flush(30) == 0
    for _ in range(2):
        status, seen, codes = sampled(config, 100)
        assert status == (1 if pipeline.processes else 8), "a table of Memory, once it is known"
        assert codes == {"sample-dead"}
        assert seen.keys() == {pipeline.table, f"{pipeline.table}_narrow", "nowhere.t", ""}
        assert (seen[pipeline.table]["good"], seen[pipeline.table]["bad"]) == (4, 1)
        assert seen[pipeline.table]["problems"][0]["reason"] == "null value"
        assert seen[pipeline.table]["problems"][0]["kind"] == "null-value"
        of_narrow = seen[f"{pipeline.table}_narrow"]
        assert (of_narrow["good"], of_narrow["bad"]) == (1, 1)
        assert "300" in of_narrow["problems"][0]["reason"]
        assert (of_narrow["problems"][0]["partition"], of_narrow["problems"][0]["offset"]) == (1, 1)
        assert "looks like JSON" in seen[""]["problems"][0]["reason"]
        assert "'kind'" in seen[""]["problems"][0]["reason"]
        assert "unknown table nowhere.t" in seen["nowhere.t"]["problems"][0]["reason"]
        if not pipeline.processes:
            admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
            topics = admin.list_topics(timeout=WAIT_SECONDS).topics
            assert [name for name in topics if name.startswith(pipeline.app)] == [pipeline.source]
            process = pipeline.start("a", config)
            pipeline.until(lambda: len(pipeline.dead()) == 4, "the dead letters")
            process.terminate()
            assert pipeline.end_of(process) == 0

    # The newest: the last message of each partition.
    _, seen, _ = sampled(config, 2)
    assert (seen[pipeline.table]["good"], seen[pipeline.table]["bad"]) == (1, 1)


def test_a_sample_without_a_good_message_is_an_error(pipeline: Pipeline) -> None:  # noqa: F811
    """For people: the table of what was seen, and the finding."""
    producer = Producer({"bootstrap.servers": pipeline.bootstrap})
    for _ in range(5):
        pipeline.produce(producer, b"\0\0\0\0\x07\x08\x01", 0, [])
    assert producer.flush(30) == 0
    status, output = relay_doctor(pipeline.config(), "--sample", "100")
    assert status == 1
    assert "sample-all-dead" in output
    assert "none of 5 messages can become rows" in " ".join(output.replace("│", " ").split())
    assert "schema id 7" in output


def test_kinds_of_a_table_are_bounded() -> None:
    many = [
        ("d.t", 0, at, DeadReason(DeadKind.DOES_NOT_FIT, f"row {at}", f"column_{at}"))
        for at in range(3 * MOST)
    ]
    (one,) = tallied(many)
    assert one.bad == 3 * MOST
    assert len(one.problems) == MOST + 1
    assert one.largest()[0].reason == OTHERS
    first = one.problems[DeadKind.DOES_NOT_FIT, "column_0"]
    assert (first.kind, first.reason, first.messages) == ("does-not-fit", "row 0", 1)
