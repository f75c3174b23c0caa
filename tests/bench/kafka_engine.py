"""The peer that is ClickHouse itself: a table of the engine Kafka, and views that empty it.

Receives a running stack and a topic, gives readers that insert by themselves until they are
dropped. They read `ProtobufList`, whose messages begin with their length as a varint
(`tests.bench.rows.delimited`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from relay import names
from relay.schema import evolution, row_descriptor
from relay.schema.row_descriptor import ProtoMessage
from tests.bench import rows

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from relay.dev.stack import Stack
    from tests.bench.rows import Shape

DATABASE = "engine"
SETTINGS = {
    "kafka_num_consumers": 1,
    "kafka_thread_per_consumer": 1,
    "kafka_max_block_size": 1_048_576,
    # Of messages. A block ends only when all that was polled is in it, so with 100 rows in each
    # message the default of 65 505 would make one of 6.5 million rows.
    "kafka_poll_max_batch_size": 4_096,
    "kafka_poll_timeout_ms": 100,
    "kafka_flush_interval_ms": 1_000,
}
"""Blocks of a million rows, or of a second. Chosen by what the settings mean: other values have not
been measured here."""


@dataclass(frozen=True, slots=True)
class Readers:
    """How many readers a topic of several tables has.

    Attributes:
        alone: one reader with a view for each table: all tables have the same columns. Else each
            table has a reader of its own, which reads and parses the messages of all.
    """

    name: str
    alone: bool


EACH = Readers("Kafka engine, a reader for each table", alone=False)
ALONE = Readers("Kafka engine, one reader of like tables", alone=True)


def proto(shape: Shape) -> str:
    """The schema, with the names that `ProtobufList` looks for."""
    schema = rows.codec(shape.names[0], shape).schema
    message = ProtoMessage(tuple(evolution.row_fields(evolution.live_columns(schema))))
    row = [f"  {line}" for line in row_descriptor.message_lines(message)]
    return "\n".join([
        'syntax = "proto3";',
        "message Envelope {",
        *row,
        "  repeated Row rows = 1;",
        "}",
        "",
    ])  # fmt: skip


def statements(
    bootstrap: str, topic: str, shape: Shape, readers: Readers, schema: Path
) -> list[str]:
    """SQL that makes the readers and views; they start at once.

    `schema`: the file that `proto` gave. Its whole path: chdb's server does not look for a name
    where its settings say.
    """
    many = 1 if readers.alone else shape.tables
    columns = [column.name for column in shape.definitions]
    types = ", ".join(
        # Ticks; the format would take a number for seconds.
        f"{column.name} {'Int64' if column.type.startswith('DateTime64') else column.type}"
        for column in shape.definitions
    )
    chosen = ", ".join(
        f"fromUnixTimestamp64Milli({column}) AS {column}" if column == "at" else column
        for column in columns
    )
    made = [f"CREATE DATABASE IF NOT EXISTS {DATABASE}"]
    for number in range(many):
        settings = {
            "kafka_broker_list": bootstrap,
            "kafka_topic_list": topic,
            "kafka_group_name": group(topic, number),
            "kafka_format": "ProtobufList",
            "kafka_schema": f"{schema.with_suffix('')}:Row",
            **SETTINGS,
        }
        listed = ", ".join(f"{name} = {value!r}" for name, value in settings.items())
        made.append(
            f"CREATE TABLE {DATABASE}.reader_{number} ({types}) ENGINE = Kafka SETTINGS {listed}"
        )
    for number, table in enumerate(shape.names):
        reader = f"{DATABASE}.reader_{0 if readers.alone else number}"
        where = ""
        if shape.tables > 1:
            at = f"indexOf(_headers.name, '{names.TABLE_HEADER}')"
            where = f" WHERE _headers.value[{at}] = '{table}'"
        made.append(
            f"CREATE MATERIALIZED VIEW {DATABASE}.view_{number} TO {table} AS "
            f"SELECT {chosen} FROM {reader}{where}"
        )
    return made


def group(topic: str, number: int) -> str:
    """The consumer group of a reader."""
    return f"{topic}.{number}"


def start(client: Client, stack: Stack, topic: str, shape: Shape, readers: Readers) -> None:
    """Readers and views; they begin at the topic's first message."""
    schema = stack.directory / "bench_rows.proto"
    schema.write_text(proto(shape))
    for statement in statements(stack.bootstrap, topic, shape, readers, schema):
        client.command(statement)


def stop(client: Client) -> None:
    """Drop all of them, as far as there are any."""
    client.command(f"DROP DATABASE IF EXISTS {DATABASE} SYNC")
