"""Whatever comes in the source topic: consumed = loaded + dead, by message."""

from __future__ import annotations

import random
import string
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from relay.schema.dead_reason import DeadKind
from tests.broker.pipeline import length_prefixed, row_batch, varint

if TYPE_CHECKING:
    from collections.abc import Collection

    from clickhouse_connect.driver.client import Client

    from tests.broker.pipeline import Pipeline

Headers = list[tuple[str, str | bytes | None]]

FIRST_GOOD = 10
"""Ids of good rows have two digits, so that all good messages are of one size."""


def bad_messages(table: str) -> dict[str, tuple[bytes | None, Headers, str]]:
    """By kind: value, headers, and a part of the reason that the dead letter must give."""
    named: Headers = [("table", table.encode())]
    narrow: Headers = [("table", f"{table}_narrow".encode())]
    good = row_batch([1])
    after = len(row_batch([FIRST_GOOD]))
    reaching = b"\x08\x01\x12" + varint(after)
    return {
        "missing header": (good, [], "header"),
        "other header only": (good, [("tabel", table.encode())], "header"),
        "doubled header": (good, named + named, "header"),
        "null header": (good, [("table", None)], "header"),
        "header not UTF-8": (good, [("table", b"db.\xff\xfe")], "header"),
        "unknown table": (good, [("table", b"nowhere.nothing")], "unknown table"),
        "SQL in the name": (good, [("table", f"a.b'); DROP TABLE {table}; --".encode())], "header"),
        "no RowBatch": (b"\xff\xff\xff\xff plain text", named, ""),
        "foreign fields": (good + b"\x12\x03abc", named, ""),
        "row cut short": (row_batch([1, 2])[:-1], named, ""),
        "row that takes in the next message": (
            b"\x0a" + varint(len(reaching) + after) + reaching,
            named,
            "not a RowBatch",
        ),
        "inner row cut short": (b"\x0a" + length_prefixed(b"\x08\x01\x12\x09ab"), named, ""),
        "bad UTF-8 in a string": (b"\x0a" + length_prefixed(b"\x12\x02\xff\xfe"), named, ""),
        "number out of range": (b"\x0a" + length_prefixed(b"\x08\xac\x02"), narrow, "300"),
        "null value": (None, named, "null"),
        "empty batch": (b"", named, "empty"),
    }


def each_lands(pipeline: Pipeline, client: Client, kinds: Collection[str] = ()) -> None:
    """Bad messages of these kinds (all, if none is named), a good one before and after each.

    They are there before the relay starts, so that a buffer holds good and bad ones.
    """
    client.command(f"CREATE TABLE {pipeline.table}_narrow (id Int8) ENGINE = Memory")

    def exists() -> bool:
        return client.command(f"EXISTS TABLE {pipeline.table}") == 1

    bad = bad_messages(pipeline.table)
    bad = {kind: bad[kind] for kind in kinds or bad}
    good = range(FIRST_GOOD, FIRST_GOOD + len(bad) + 1)
    producer = Producer({"bootstrap.servers": pipeline.bootstrap})
    for at, (value, headers, _) in zip(good, bad.values(), strict=False):
        pipeline.produce(producer, row_batch([at]), 0)
        pipeline.produce(producer, value, 0, headers)
    pipeline.produce(producer, row_batch([good[-1]]), 0)
    pipeline.sent.update(good)
    assert producer.flush(30) == 0

    pipeline.start("a")
    pipeline.until(
        lambda: not exists() or pipeline.floor(0) == 2 * len(bad) + 1, "the floor behind the last"
    )
    pipeline.await_markers()
    assert exists(), "SQL was executed"
    assert pipeline.rows() == pipeline.sent, "a bad message became rows, or a good one was lost"
    dead = {int(h["source_offset"]): (value, h) for value, h in pipeline.dead()}
    # Message i of kind k was the one after good message k: offsets 1, 3, 5, ...
    assert sorted(dead) == list(range(1, 2 * len(bad), 2)), "a message left no trace"
    for at, (kind, (value, _, reason)) in enumerate(bad.items()):
        found, headers_found = dead[2 * at + 1]
        assert found == value, kind
        assert reason in headers_found["reason"], kind
        assert headers_found["reason"], kind
        assert headers_found["kind"] in set(DeadKind) - {DeadKind.UNKNOWN}, kind
        assert headers_found["source_topic"] == pipeline.source
        assert headers_found["source_partition"] == "0"
    pipeline.exactly_once()


def test_each_kind_lands_in_the_dead_letters(pipeline: Pipeline, client: Client) -> None:
    """Each with reason and coordinates; good neighbours go through; no SQL is executed."""
    each_lands(pipeline, client)


def test_a_message_near_the_size_limit_goes_through(pipeline: Pipeline) -> None:
    """A row that hardly compresses, as large as brokers take it, is a chunk larger than that."""
    letters = string.ascii_letters + string.digits
    text = "".join(random.Random(7).choices(letters, k=1_048_300)).encode()
    row = b"\x08\x07" + b"\x12" + length_prefixed(text)
    producer = Producer({"bootstrap.servers": pipeline.bootstrap, "message.max.bytes": 1_048_588})
    pipeline.produce(producer, row_batch([6]), 0)
    pipeline.produce(producer, b"\x0a" + length_prefixed(row), 0)
    pipeline.produce(producer, row_batch([8]), 0)
    assert producer.flush(30) == 0
    pipeline.sent.update([6, 7, 8])

    relay = pipeline.start("a")

    def settled() -> bool:
        return bool(relay.poll() is not None or pipeline.dead()) or pipeline.rows() == pipeline.sent

    pipeline.until(settled, "all rows")
    assert relay.poll() is None
    assert not pipeline.dead(), "the relay gave up on a message"
    pipeline.exactly_once()
