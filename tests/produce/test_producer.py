"""The producer library and `relay produce`, on a real broker and ClickHouse's engine."""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib
import io
import json
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented, not in __all__
    AdminClient,
    NewTopic,
)

from relay.cli import cli
from relay.config.server_settings import ClickHouse
from relay.config.settings import Kafka, Settings
from relay.config.settings_file import load
from relay.dev.clickhouse import toml
from relay.errors import ConfigError, Fenced, Refused, Unavailable
from relay.produce.arrow_columns import BadValue
from relay.produce.codecs import table_codecs
from relay.produce.row_producer import Batching, RowProducer
from relay.program.command import run_main
from relay.rows.envelope import open_messages
from relay.rows.row_codec import RowCodec
from relay.schema.evolution import ColumnDef
from relay.schema.registry import Registry
from tests.broker.pipeline import create_topics, wait_until
from tests.produce.codecs import codec
from tests.schema.rows import decode_rows

CODEC = codec(ColumnDef("n", "Int32"), ColumnDef("w", "String"))
PARTITIONS = 2
LIMIT = 100_000
TOO_LONG = random.Random(1).randbytes(LIMIT).hex()
"""Does not compress below the topic's limit."""


def codecs(table: str) -> RowCodec:
    assert table == "d.t"
    return CODEC


@pytest.fixture
def topic(bootstrap: str, app: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    name = f"{app}.source"
    new = NewTopic(name, num_partitions=PARTITIONS, config={"max.message.bytes": str(LIMIT)})
    create_topics(admin, new)
    return name


def messages(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[Any]:
    """All visible messages, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "test",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    found, ended = [], 0
    deadline = time.monotonic() + 30
    while ended < PARTITIONS:
        assert time.monotonic() < deadline
        message = consumer.poll(1)
        if message is not None:
            if message.error() is None:
                found.append(message)
            else:
                ended += 1
    consumer.close()
    return found


def rows(found: list[Any], codec: RowCodec = CODEC) -> list[dict[str, Any]]:
    opened = open_messages(pa.array([m.value() for m in found], pa.binary()), "batch")
    assert not opened.bad
    decoded: list[dict[str, Any]] = decode_rows(codec, opened.rows).to_pylist()
    return decoded


def numbers(found: list[Any]) -> list[int]:
    return sorted(row["n"] for row in rows(found))


def test_every_row_is_there_once_when_the_block_ends(bootstrap: str, topic: str) -> None:
    """Single rows and batches, cut by size, each message with the table's header."""
    batching = Batching(rows=10, bytes=2000)
    with RowProducer(Kafka(bootstrap=bootstrap), topic, codecs, batching=batching) as producer:
        for n in range(105):
            producer.write("d.t", {"n": n, "w": "x" * n})
        producer.write_arrow("d.t", pa.record_batch({"n": pa.array(range(105, 1000))}))
    found = messages(bootstrap, topic)
    assert numbers(found) == list(range(1000))
    assert all(m.headers() == [("table", b"d.t")] for m in found)
    sizes = [open_messages(pa.array([m.value()], pa.binary()), "batch").counts[0] for m in found]
    assert max(sizes) == 10
    assert max(len(m.value()) for m in found) <= 2000
    assert producer.delivered() == {"d.t": 1000}


def test_rows_of_a_quiet_program_do_not_wait_for_its_next_write(bootstrap: str, topic: str) -> None:
    """A lone row is sent after batching.seconds, without flush or another write."""
    batching = Batching(seconds=0.05)
    with RowProducer(Kafka(bootstrap=bootstrap), topic, codecs, batching=batching) as producer:
        producer.write("d.t", {"n": 1})
        deadline = time.monotonic() + 20
        while not messages(bootstrap, topic):
            assert time.monotonic() < deadline


def test_threads_may_share_a_producer(bootstrap: str, topic: str) -> None:
    """Four threads, and no row lost or doubled."""

    def write(first: int) -> None:
        for n in range(first, first + 500):
            producer.write("d.t", {"n": n})

    with RowProducer(Kafka(bootstrap=bootstrap), topic, codecs) as producer:
        threads = [threading.Thread(target=write, args=(n,)) for n in range(0, 2000, 500)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert numbers(messages(bootstrap, topic)) == list(range(2000))


def test_a_row_that_does_not_fit_leaves_the_others(bootstrap: str, topic: str) -> None:
    """The write that brings a bad value raises; what was accepted before and after is sent."""
    with RowProducer(Kafka(bootstrap=bootstrap), topic, codecs) as producer:
        producer.write("d.t", {"n": 1})
        with pytest.raises(BadValue):
            producer.write("d.t", {"n": "one"})
        with pytest.raises(BadValue):
            producer.write_arrow("d.t", pa.record_batch({"n": pa.array(["7", "x"])}))
        with pytest.raises(ConfigError):
            producer.write_arrow("d.t", pa.record_batch({"m": pa.array([7])}))
        producer.write("d.t", {"n": 2})
    assert numbers(messages(bootstrap, topic)) == [1, 2]


def test_a_refused_message_makes_flush_and_close_raise(bootstrap: str, topic: str) -> None:
    """A row above the topic's limit is not lost silently, nor are later ones sent past it."""
    producer = RowProducer(Kafka(bootstrap=bootstrap), topic, codecs)
    producer.write("d.t", {"n": 1, "w": TOO_LONG})
    with pytest.raises(Refused, match=r"1 messages \(1 rows\) .* MSG_SIZE_TOO_LARGE"):
        producer.flush()
    with pytest.raises(Refused):
        producer.write("d.t", {"n": 2})
    with pytest.raises(Refused):
        producer.close()
    assert messages(bootstrap, topic) == []


def test_no_broker_is_said_within_the_delivery_timeout() -> None:
    """Nobody listens: close raises Unavailable."""
    kafka = Kafka(bootstrap="127.0.0.1:9", client={"log_level": 0})
    producer = RowProducer(kafka, "t", codecs, delivery_timeout_seconds=1)
    producer.write("d.t", {"n": 1})
    with pytest.raises(Unavailable, match=r"not delivered to t"):
        producer.close()


WRITES: list[Callable[[RowProducer], object]] = [
    lambda producer: producer.write("d.t", {"n": 1}),
    lambda producer: producer.write_arrow("d.t", pa.record_batch({"n": pa.array([1])})),
    lambda producer: producer.write_rows("d.t", pa.array([b""], pa.binary())),
    lambda producer: producer.flush(),
]


@pytest.mark.parametrize("transactional_id", [None, pytest.param("t", marks=pytest.mark.servers)])
@pytest.mark.parametrize("write", WRITES)
def test_a_closed_producer_takes_no_row(
    request: pytest.FixtureRequest,
    write: Callable[[RowProducer], object],
    transactional_id: str | None,
) -> None:
    """It would be sent by nobody. A second close is nothing."""
    bootstrap = request.getfixturevalue("bootstrap") if transactional_id else "127.0.0.1:9"
    kafka = Kafka(bootstrap=bootstrap, client={"log_level": 0})
    producer = RowProducer(kafka, "t", codecs, transactional_id=transactional_id)
    producer.close()
    with pytest.raises(ConfigError, match="the producer is closed"):
        write(producer)
    with pytest.raises(ConfigError):
        producer.begin()
    producer.close()


def test_what_a_thread_writes_while_another_closes_is_sent_or_refused(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write comes when close has flushed and the client is still there."""
    producer = RowProducer(Kafka(bootstrap=bootstrap), topic, codecs)
    producer.write("d.t", {"n": 1})
    outcome: list[str] = []

    def write() -> None:
        try:
            producer.write("d.t", {"n": 2})
        except ConfigError:
            outcome.append("refused")
        else:
            outcome.append("accepted")

    thread = threading.Thread(target=write)
    let_go = producer._delivery.close

    def close() -> None:
        thread.start()
        thread.join(0.5)  # it may have to wait for the lock
        let_go()

    monkeypatch.setattr(producer._delivery, "close", close)
    producer.close()
    thread.join()
    assert outcome == ["refused"]
    assert numbers(messages(bootstrap, topic)) == [1]


def test_threads_that_write_until_close_lose_nothing(bootstrap: str, topic: str) -> None:
    """As many rows arrive as writes returned."""
    producer = RowProducer(Kafka(bootstrap=bootstrap), topic, codecs)
    accepted: list[int] = []

    def write(first: int) -> None:
        for n in range(first, first + 1_000_000):
            try:
                producer.write("d.t", {"n": n})
            except ConfigError:
                return
            accepted.append(n)

    threads = [threading.Thread(target=write, args=(n,)) for n in (0, 10_000_000)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(accepted) >= 100, "rows that were accepted")
    producer.close()
    for thread in threads:
        thread.join()
    assert numbers(messages(bootstrap, topic)) == sorted(accepted)


def test_a_transaction_whose_producer_another_closes_is_not_committed_silently(
    bootstrap: str, topic: str
) -> None:
    """Close aborts it; the body that goes on writing, or commits, is told."""
    kafka = Kafka(bootstrap=bootstrap)
    for body_writes in (True, False):
        producer = RowProducer(kafka, topic, codecs, transactional_id=topic)
        with pytest.raises(ConfigError, match="is closed"), producer.transaction():  # noqa: PT012
            producer.write("d.t", {"n": 1})
            producer.close()
            if body_writes:
                producer.write("d.t", {"n": 2})
    assert messages(bootstrap, topic) == []


@pytest.mark.parametrize("ends", [[1], [3], [0, 2], [2, 1], [1, 1, 2], []])
def test_ends_that_leave_rows_out_or_make_empty_messages_are_refused(ends: list[int]) -> None:
    """Rows behind the last end would be dropped, and the relay refuses a message without rows."""
    kafka = Kafka(bootstrap="127.0.0.1:9", client={"log_level": 0})
    with RowProducer(kafka, "t", codecs, delivery_timeout_seconds=0.1) as producer:
        two = pa.record_batch({"n": pa.array([1, 2])})
        with pytest.raises(ConfigError, match="ends of messages"):
            producer.write_arrow("d.t", two, np.array(ends, np.int64))


def test_a_failure_while_closing_is_noted_on_the_error_under_way() -> None:
    """The program's own error is the one that is seen."""
    kafka = Kafka(bootstrap="127.0.0.1:9", client={"log_level": 0})

    def program() -> None:
        with RowProducer(kafka, "t", codecs, delivery_timeout_seconds=1) as producer:
            producer.write("d.t", {"n": 1})
            raise KeyError("the program's")

    with pytest.raises(KeyError) as seen:
        program()
    assert "not delivered" in seen.value.__notes__[0]


def test_a_transaction_is_seen_as_a_whole_or_not_at_all(bootstrap: str, topic: str) -> None:
    """Committed rows are visible; rows of a body that raises are not, nor is what stays open."""
    kafka = Kafka(bootstrap=bootstrap)
    with RowProducer(kafka, topic, codecs, transactional_id=topic) as producer:
        with pytest.raises(ConfigError, match="outside a transaction"):
            producer.write("d.t", {"n": 0})
        with producer.transaction():
            producer.write("d.t", {"n": 1})
        with pytest.raises(BadValue), producer.transaction():  # noqa: PT012 - one body
            producer.write("d.t", {"n": 2})
            producer.flush()
            producer.write("d.t", {"n": "two"})
        with pytest.raises(Refused), producer.transaction():
            producer.write("d.t", {"n": 3, "w": TOO_LONG})
        with producer.transaction():
            producer.write("d.t", {"n": 4})
        producer.begin()
        producer.write("d.t", {"n": 5})
    # It is committed before its markers are in the log.
    wait_until(lambda: numbers(messages(bootstrap, topic)) == [1, 4], "what was committed")
    # The control: what was aborted had reached the topic.
    assert numbers(messages(bootstrap, topic, "read_uncommitted"))[:3] == [1, 2, 4]


@pytest.mark.filterwarnings("ignore:Producer abort_transaction failed during close")
def test_a_second_producer_fences_the_first(bootstrap: str, topic: str) -> None:
    """One transactional id, one producer: the older one's commit is refused."""
    kafka = Kafka(bootstrap=bootstrap)
    first = RowProducer(kafka, topic, codecs, transactional_id=topic)
    first.begin()
    first.write("d.t", {"n": 1})
    first.flush()
    with RowProducer(kafka, topic, codecs, transactional_id=topic) as second:
        with second.transaction():
            second.write("d.t", {"n": 2})
        with pytest.raises(Fenced):
            first.commit()
    with pytest.raises(Fenced):
        first.close()
    wait_until(lambda: numbers(messages(bootstrap, topic)) == [2], "what was committed")


@pytest.mark.filterwarnings("ignore:Producer abort_transaction failed during close")
def test_a_fenced_producer_leaves_the_id_to_its_successor(bootstrap: str, topic: str) -> None:
    """It slept, and its records are refused: giving up, it made a client that fenced the other."""
    kafka = Kafka(bootstrap=bootstrap)
    first = RowProducer(kafka, topic, codecs, transactional_id=topic)
    first.begin()
    first.write("d.t", {"n": 1})
    first.flush()
    with RowProducer(kafka, topic, codecs, transactional_id=topic) as second:
        second.begin()
        second.write("d.t", {"n": 2})
        first.write("d.t", {"n": 3})
        for end in (first.flush, first.abort, first.close):
            with pytest.raises(Fenced):
                end()
        second.commit()
    wait_until(lambda: numbers(messages(bootstrap, topic)) == [2], "what was committed")


@pytest.mark.filterwarnings("ignore:Producer abort_transaction failed during close")
@pytest.mark.parametrize("more", [False, True], ids=["commits", "writes more"])
def test_a_transaction_that_is_open_for_too_long_says_so(
    bootstrap: str, topic: str, more: bool
) -> None:
    """Its coordinator ends it, which looks as if another producer had come: it was `Fenced`."""
    kafka = Kafka(bootstrap=bootstrap)
    producer = RowProducer(
        kafka, topic, codecs, transactional_id=topic, delivery_timeout_seconds=3.0
    )
    producer.begin()
    producer.write("d.t", {"n": 1})
    producer.flush()
    wait_until(lambda: stable(bootstrap, topic) > 0, "the coordinator ends the transaction")
    with pytest.raises(Unavailable, match=r"open for \d+ s of the 3 s") as ended:  # noqa: PT012
        if more:
            producer.write("d.t", {"n": 2})
        producer.commit()
    assert "raise delivery_timeout_seconds" in ended.value.next_step
    with contextlib.suppress(Unavailable):
        producer.close()
    assert messages(bootstrap, topic) == []
    with RowProducer(kafka, topic, codecs, transactional_id=topic) as other, other.transaction():
        other.write("d.t", {"n": 3})
    wait_until(lambda: numbers(messages(bootstrap, topic)) == [3], "what was committed")


def stable(bootstrap: str, topic: str) -> int:
    """How many records and markers are before the last stable offsets."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "test",
            "isolation.level": "read_committed",
        }
    )
    places = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    ends = [reader.get_watermark_offsets(place, 10, cached=False)[1] for place in places]
    reader.close()
    return sum(ends)


@pytest.fixture
def file(tmp_path: Path, bootstrap: str, clickhouse: ClickHouse, app: str, topic: str) -> Path:
    path = tmp_path / "relay.toml"
    path.write_text(
        f"""
        app = "{app}"
        kafka.bootstrap = "{bootstrap}"
        source = {{ topic = "{topic}", start = "earliest" }}
        loader.checkpoint = "{tmp_path / "checkpoint"}"
        [clickhouse]
        {toml(clickhouse)}
        """
    )
    return path
    return path


@pytest.fixture
def settings(file: Path) -> Settings:
    return load(file)


@pytest.fixture
def table(client: Any, database: str) -> str:
    name = f"{database}.trips"
    client.command(
        f"CREATE TABLE {name} (id UInt32, at DateTime('UTC'), who LowCardinality(Nullable(String)),"
        " note String DEFAULT 'none', _block String) ENGINE = MergeTree ORDER BY id"
    )
    return name


def test_field_numbers_are_fixed_before_the_first_relay_starts(
    settings: Settings, table: str
) -> None:
    """The producer proposes the table to the registry, without the block column, once."""
    found = table_codecs(settings)(table)
    assert found.column_names == ["id", "at", "who", "note"]
    assert table_codecs(settings)(table).schema == found.schema
    registry = Registry(settings.kafka, settings.app)
    registry.catch_up()
    assert registry.current(table) == found.schema


def test_a_table_that_is_not_there_is_named(settings: Settings, database: str) -> None:
    """Also one whose name holds SQL, which is only ever looked up."""
    lookup = table_codecs(settings)
    with pytest.raises(ConfigError, match=f"{database}.nothing"):
        lookup(f"{database}.nothing")
    with pytest.raises(ConfigError, match="not a table name"):
        lookup("system.one; DROP TABLE x")


def test_write_from_settings(settings: Settings, table: str, bootstrap: str) -> None:
    """What the tutorial shows: settings, a dict, done."""
    with RowProducer.from_settings(settings) as producer:
        producer.write(table, {"id": 1, "at": dt.datetime(1970, 1, 1, 0, 1, tzinfo=dt.UTC)})
        found = producer.codec(table)
    assert rows(messages(bootstrap, settings.source.topic), found) == [
        {"id": 1, "at": 60, "who": None, "note": None}
    ]


def relay(*arguments: object) -> int:
    return run_main(cli, "relay", [str(argument) for argument in arguments])


def test_relay_produce_sends_files_of_every_format(
    file: Path, settings: Settings, table: str, bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three files, 1..3 rows a message, every row once, and a line that says so."""
    one, two, three = (file.parent / f"rows.{suffix}" for suffix in ("csv", "jsonl", "parquet"))
    one.write_text("id,at,who\n" + "".join(f"{n},1970-01-01T00:00:0{n}Z,NA\n" for n in range(10)))
    two.write_text("".join(f'{{"id": {n}, "at": {n}}}\n' for n in range(10, 20)))
    times = pa.array(range(20, 30), pa.timestamp("s", "UTC"))
    pyarrow.parquet.write_table(pa.table({"id": range(20, 30), "at": times}), three)
    options = ("--table", table, "--rows-per-message", "1..3", "--null", "NA")
    assert relay("produce", file, one, two, three, *options) == 0
    found = messages(bootstrap, settings.source.topic)
    assert capsys.readouterr().out == (
        f"30 rows of {table} in {len(found)} messages to {settings.source.topic}\n"
    )
    sent = rows(found, table_codecs(settings)(table))
    assert sorted((row["id"], row["at"]) for row in sent) == [(n, n) for n in range(30)]
    assert 10 <= len(found) <= 30


def test_relay_produce_sends_nothing_of_files_of_which_one_is_wrong(
    file: Path, table: str, bootstrap: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 2, the place of the bad value, and an empty topic: it can be tried again."""
    good, bad = file.parent / "good.csv", file.parent / "bad.csv"
    good.write_text("id,at\n1,1\n")
    bad.write_text("id,at\n1,1\n2,soon\n")
    assert relay("produce", file, good, bad, "--table", table) == 2
    assert f"{bad}, row 2, column 'at': 'soon'" in "".join(capsys.readouterr().err.split("\n"))
    assert messages(bootstrap, topic) == []


def test_relay_produce_takes_standard_input_and_tries_first(
    file: Path,
    settings: Settings,
    table: str,
    bootstrap: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """--dry-run counts and sends nothing; a column too many is left out by choice alone."""
    text = b'[{"id": 1, "at": "1970/1/1 00:01:00Z", "x": 5}, {"id": 2, "at": 2}]'
    options = ("--table", table, "--json")
    told = {"table": table, "topic": settings.source.topic, "rows": 2}

    def produced(*more: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
        status = relay("produce", file, "-", *options, *more)
        return status, capsys.readouterr().out

    assert produced() == (2, "")
    extra = "--ignore-unknown-columns"
    status, out = produced(extra, "--dry-run")
    assert (status, json.loads(out)) == (0, {**told, "messages": 0, "sent": False})
    assert messages(bootstrap, settings.source.topic) == []
    status, out = produced(extra)
    assert (status, json.loads(out)) == (0, {**told, "messages": 1, "sent": True})
    sent = rows(messages(bootstrap, settings.source.topic), table_codecs(settings)(table))
    assert [(row["id"], row["at"]) for row in sent] == [(1, 60), (2, 2)]
    assert relay("produce", file, "-", "-", *options) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_send_says_what_is_delivered(
    file: Path,
    table: str,
    bootstrap: str,
    topic: str,
    number: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All that was handed over until then, which is flushed at the end."""
    sources = [file.parent / f"{name}.csv" for name in "ab"]
    for source in sources:
        source.write_text("id,at\n1,1\n2,2\n")
    send = RowProducer.write_rows
    sent: list[int] = []

    def interrupted(producer: RowProducer, *given: Any) -> int:
        if sent:
            signal.raise_signal(number)
        sent.append(send(producer, *given))
        return sent[-1]

    monkeypatch.setattr(RowProducer, "write_rows", interrupted)
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert relay("produce", file, *sources, "--table", table) == 130
    finally:
        signal.signal(signal.SIGTERM, before)
    said = "".join(capsys.readouterr().err.split("\n"))
    assert f"relay: interrupted; 2 of 4 rows of {table} were delivered" in said
    assert len(messages(bootstrap, topic)) == 1


def app_topics(settings: Settings, bootstrap: str) -> set[str]:
    every = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics
    return {name for name in every if name.startswith(settings.app)}


def test_a_dry_run_fixes_no_field_number_and_makes_no_topic(
    file: Path,
    settings: Settings,
    client: Any,
    table: str,
    bootstrap: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Neither of a new app, nor of a table altered since; its errors are those of the send."""
    source = file.parent / "rows.csv"
    source.write_text("id,at\n1,1\n")
    words = ("produce", file, source, "--table")
    assert relay(*words, table, "--dry-run") == 0
    assert relay(*words, f"{table}s", "--dry-run") == 2
    said = capsys.readouterr().err
    assert "did you mean" in said
    assert "create the table in ClickHouse" in said
    assert app_topics(settings, bootstrap) == {settings.source.topic}

    known = table_codecs(settings)(table).schema
    client.command(f"ALTER TABLE {table} ADD COLUMN more UInt8")
    source.write_text("id,at,more\n1,1,1\n")
    assert relay(*words, table, "--dry-run") == 0
    registry = Registry(settings.kafka, settings.app)
    registry.catch_up()
    assert registry.current(table) == known


def test_the_name_of_before_works_and_says_where_it_went() -> None:
    """relay.producer.RowProducer is the class, with a DeprecationWarning."""
    sys.modules.pop("relay.producer", None)

    with pytest.warns(DeprecationWarning, match=r"from relay\.produce import RowProducer"):
        old = importlib.import_module("relay.producer")

    assert old.RowProducer is RowProducer
