"""Whatever comes in the source topic: consumed = loaded + dead, by message."""

from __future__ import annotations

import random
import string
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from tests.broker.pipeline import length_prefixed, row_batch

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from tests.broker.pipeline import Pipeline

Headers = list[tuple[str, str | bytes | None]]


def bad_messages(table: str) -> dict[str, tuple[bytes | None, Headers, str]]:
    """By kind: value, headers, and a part of the reason that the dead letter must give."""
    named: Headers = [("table", table.encode())]
    good = row_batch([1])
    return {
        "missing header": (good, [], "header"),
        "other header only": (good, [("tabel", table.encode())], "header"),
        "doubled header": (good, named + named, "header"),
        "null header": (good, [("table", None)], "header"),
        "header not UTF-8": (good, [("table", b"db.\xff\xfe")], "header"),
        "unknown table": (good, [("table", b"nowhere.nothing")], "unknown table"),
        "SQL in the name": (good, [("table", f"{table}; DROP TABLE {table}".encode())], "header"),
        "no RowBatch": (b"\xff\xff\xff\xff plain text", named, ""),
        "foreign fields": (good + b"\x12\x03abc", named, ""),
        "row cut short": (row_batch([1, 2])[:-1], named, ""),
        "inner row cut short": (b"\x0a" + length_prefixed(b"\x08\x01\x12\x09ab"), named, ""),
        "bad UTF-8 in a string": (b"\x0a" + length_prefixed(b"\x12\x02\xff\xfe"), named, ""),
        "null value": (None, named, "null"),
        "empty batch": (b"", named, "empty"),
    }


def test_each_kind_lands_in_the_dead_letters(pipeline: Pipeline, client: Client) -> None:
    """Each with reason and coordinates; good neighbours go through; no SQL is executed."""
    pipeline.start("a")
    bad = bad_messages(pipeline.table)
    producer = Producer({"bootstrap.servers": pipeline.bootstrap})
    for at, (value, headers, _) in enumerate(bad.values()):
        pipeline.produce(producer, row_batch([at]), partition=0)
        pipeline.produce(producer, value, 0, headers)
        pipeline.sent.update([at])
    assert producer.flush(30) == 0

    pipeline.exactly_once()
    pipeline.until(lambda: len(pipeline.dead()) >= len(bad), "dead letters")
    dead = {int(h["source_offset"]): (value, h) for value, h in pipeline.dead()}

    # Message i of kind k was the one after good message k: offsets 1, 3, 5, ...
    assert sorted(dead) == list(range(1, 2 * len(bad), 2))
    for at, (kind, (value, _, reason)) in enumerate(bad.items()):
        found, headers_found = dead[2 * at + 1]
        assert found == value, kind
        assert reason in headers_found["reason"], kind
        assert headers_found["reason"], kind
        assert headers_found["source_topic"] == pipeline.source
        assert headers_found["source_partition"] == "0"
    assert client.command(f"EXISTS TABLE {pipeline.table}") == 1


def test_a_message_near_the_size_limit_goes_through(pipeline: Pipeline) -> None:
    """A row that hardly compresses, just below the producer's limit, is a chunk of its own."""
    pipeline.start("a")
    letters = string.ascii_letters + string.digits
    text = "".join(random.Random(7).choices(letters, k=999_000)).encode()
    row = b"\x08\x07" + b"\x12" + length_prefixed(text)
    producer = Producer({"bootstrap.servers": pipeline.bootstrap, "message.max.bytes": 1_048_000})
    pipeline.produce(producer, row_batch([6]), 0)
    pipeline.produce(producer, b"\x0a" + length_prefixed(row), 0)
    pipeline.produce(producer, row_batch([8]), 0)
    assert producer.flush(30) == 0
    pipeline.sent.update([6, 7, 8])

    pipeline.exactly_once()
    assert not pipeline.dead()
