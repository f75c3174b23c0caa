"""`relay dead` from the command line: bad messages of a real relay, mended and replayed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from relay.cli import cli
from relay.program.command import run_main
from tests.broker import raw_headers
from tests.broker.pipeline import row_batch

if TYPE_CHECKING:
    from pathlib import Path

    from clickhouse_connect.driver.client import Client

    from tests.broker.pipeline import Pipeline

Headers = list[tuple[str, str | bytes | None]]
TOO_LARGE = b"\x0a\x04\x08\x05\x10\x07"
"""One row of `t`: id 5, and a number where the String v belongs, which is passed over."""


class Relay:
    """`relay dead` in this process."""

    def __init__(self, config: Path, captured: pytest.CaptureFixture[str]) -> None:
        self._config = config
        self._captured = captured

    def dead(self, *arguments: str, status: int = 0) -> str:
        found = run_main(cli, "relay", ["dead", *arguments, "--config", str(self._config)])
        out, err = self._captured.readouterr()
        assert found == status, err
        return out if status == 0 else err

    def hint(self, *arguments: str) -> str:
        """What it says beside what it prints.

        Not what another test's Kafka client writes to the same stream, at lines that begin with %.
        """
        run_main(cli, "relay", ["dead", *arguments, "--config", str(self._config)])
        lines = self._captured.readouterr().err.splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith("%"))

    def objects(self, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.dead(*arguments, "--json").splitlines()]


@pytest.fixture
def relay(pipeline: Pipeline, capfd: pytest.CaptureFixture[str]) -> Relay:
    return Relay(pipeline.config(), capfd)


def test_bad_messages_are_found_mended_and_arrive_once(
    pipeline: Pipeline, relay: Relay, client: Client
) -> None:
    """A table that came too late and a wrong header: listed by table and reason, shown whole,
    and after a replay in their tables once, with key and headers as they were."""
    late = f"{pipeline.database}.late"
    traced: Headers = [("trace", b"abc"), ("table", late.encode())]
    producer = Producer({"bootstrap.servers": pipeline.bootstrap})
    producer.produce(pipeline.source, row_batch([1]), b"k1", 0, headers=traced)
    producer.produce(pipeline.source, row_batch([2]), None, 1, headers=[("tabel", b"x")])
    producer.produce(pipeline.source, b"\x0a\x63 no batch", b"", 1, headers=traced[1:])
    assert producer.flush(30) == 0
    process = pipeline.start("a")
    pipeline.until(lambda: len(pipeline.dead()) == 3, "the dead letters")

    unknown = relay.objects("ls", "--table", late, "--kind", "unknown-table")
    assert [(one["source_partition"], one["source_offset"]) for one in unknown] == [(0, 0), (1, 1)]
    assert f"did you mean {late}?" in relay.hint("ls", "--table", f"{late}r")
    assert f"did you mean {late}?" in relay.hint("replay", "--table", f"{late}r")
    assert "did you mean" not in relay.hint("replay", "--table", late)
    assert not relay.objects("ls", "--until", "1h")
    assert len(relay.objects("ls", "--since", "1h")) == 3
    [nameless] = relay.objects("ls", "--partition", "1", "--table", "")
    groups = relay.objects("ls", "--summary")
    assert [(one["table"], one["kind"], one["count"]) for one in groups] == [
        (late, "unknown-table", 2),
        ("", "no-table", 1),
    ]
    assert relay.objects("ls", "--table", late, "--reason", "unknown table") == unknown
    assert late in relay.dead("ls", "--summary")

    [shown] = relay.objects("show", unknown[0]["place"])
    assert [one["name"] for one in shown["headers"]] == ["trace", "table"]
    assert shown["key_base64"] == "azE="
    assert "no table" in shown["problem"]
    text = relay.dead("show", nameless["place"], "--as-table", late)
    assert "00000000  0a" in text
    assert f"no table '{late}'" in text

    client.command(f"CREATE TABLE {late} (id Int64, v String) ENGINE = MergeTree ORDER BY id")
    said = relay.dead("replay", "--run")
    assert f"sent 2 messages (19 bytes) to {pipeline.source}\n  2 of {late}" in said
    assert "not sent, 1: it names no table" in said
    said = relay.dead("replay", nameless["place"], "--as-table", pipeline.table, "--run")
    assert f"  1 of {pipeline.table}" in said
    pipeline.sent.update([1, 2])
    pipeline.exactly_once()
    pipeline.until(lambda: len(pipeline.dead()) == 4, "the one that is still bad")
    as_table = ("replay", nameless["place"], "--as-table")
    assert f"no table {late}r yet; did you mean {late}?" in relay.hint(*as_table, f"{late}r")
    assert not relay.hint(*as_table, late)

    again = pipeline.read(pipeline.source, 2)
    assert [(v, h) for _, v, h in again[0]][1:] == [(row_batch([1]), traced)]
    assert [h for _, _, h in again[1]][-1] == [
        ("tabel", b"x"),
        ("table", pipeline.table.encode()),
    ]
    assert keys(pipeline, 0) == [b"k1", b"k1"]
    listed = {one["place"]: one["replayed"] for one in relay.objects("ls")}
    assert listed[nameless["place"]]["table"] == pipeline.table
    assert sum(mark is None for mark in listed.values()) == 1
    assert "sent 1 messages" in relay.dead("replay", "--run"), "the new dead letter, not the old"
    assert process.poll() is None


@pytest.mark.long  # 23 s
def test_names_of_headers_that_are_not_utf8(
    pipeline: Pipeline, relay: Relay, capfd: pytest.CaptureFixture[str]
) -> None:
    """Rows are loaded, dead letters keep the name, and whoever reads source or letters goes on."""
    table, odd = (b"table", pipeline.table.encode()), (b"caf\xe9", b"x")
    messages: list[tuple[bytes, raw_headers.Named]] = [
        (row_batch([1]), [odd, table]),
        (row_batch([2]), [table, odd]),
        (row_batch([3]), [odd]),
        (b"\x0a\x63 no batch", [odd, table]),
    ]
    raw_headers.send(pipeline.bootstrap, pipeline.source, messages)
    process = pipeline.start("a")
    pipeline.until(lambda: pipeline.floor(0) == len(messages), "the floor behind the last")
    assert process.poll() is None

    letters = {one["source_offset"]: one for one in relay.objects("ls")}
    assert letters.keys() == {2, 3}
    assert r"its headers are 'caf\\xe9'" in letters[2]["reason"]
    [shown] = relay.objects("show", letters[3]["place"])
    assert [one["name"] for one in shown["headers"]] == [r"caf\xe9", "table"]
    assert r"  caf\xe9: " in relay.dead("show", letters[3]["place"])

    relay.dead("replay", letters[2]["place"], "--as-table", pipeline.table, "--run")
    pipeline.until(lambda: pipeline.rows().total() == 3, "the replayed row")
    pipeline.sent.update([1, 2, 3])
    pipeline.exactly_once()
    config = str(pipeline.config())
    for command in (["verify", "--deep", config], ["doctor", "--sample", "10", config]):
        assert run_main(cli, "relay", command) not in {2, 70}, capfd.readouterr().err
    assert process.poll() is None


def test_the_rows_of_a_bad_message_are_shown(
    pipeline: Pipeline, relay: Relay, tmp_path: Path
) -> None:
    """Those that decode by the table's row message, those that do not with the reason; and the
    value's bytes in a file."""
    value = row_batch([7]) + b"\x0a\x04\x08\x08\x12\x09"
    producer = Producer({"bootstrap.servers": pipeline.bootstrap})
    pipeline.produce(producer, value, 0)
    assert producer.flush(30) == 0
    pipeline.start("a")
    pipeline.until(lambda: len(pipeline.dead()) == 1, "the dead letter")

    raw = tmp_path / "value"
    [one] = relay.objects("ls")
    text = relay.dead("show", one["place"], "--raw", str(raw))
    assert '  1: id: 7 v: "v7"\n  2: id: 8\n     ! failed to decode' in text
    assert raw.read_bytes() == value
    [shown] = relay.objects("show", one["place"])
    assert [row["fields"] for row in shown["rows"]] == [{"id": "7", "v": "v7"}, {"id": "8"}]


def test_what_cannot_be_is_said(relay: Relay, pipeline: Pipeline) -> None:
    """No topic yet, no such dead letter, and arguments that are none: status 2, with a reason."""
    assert f"there is no topic {pipeline.app}.dead" in relay.dead("ls", status=2)
    pipeline.start("a")
    pipeline.until(lambda: bool(pipeline.journal()[0]), "the relay has made its topics")
    for place in ("0:5", "9:0"):
        assert f"there is no dead letter {place}" in relay.dead("show", place, status=2)
    for arguments, said in {
        ("ls", "--reason", "("): "missing )",
        ("ls", "--since", "soon"): "neither an ISO 8601 time",
        ("show", "17"): "not PARTITION:OFFSET",
        ("replay", "--as-table", "a; DROP"): "not a table name",
    }.items():
        assert said in relay.dead(*arguments, status=2)
    assert relay.dead("ls") == ""


def keys(pipeline: Pipeline, partition: int) -> list[bytes | None]:
    """Of all messages of a source partition; `Pipeline.read` leaves them out."""
    reader = Consumer({"bootstrap.servers": pipeline.bootstrap, "group.id": f"{pipeline.app}.keys"})
    place = TopicPartition(pipeline.source, partition, 0)
    count = len(pipeline.read(pipeline.source, 2)[partition])
    reader.assign([place])
    found = reader.consume(count, 30)
    reader.close()
    assert len(found) == count
    return [message.key() for message in found]
