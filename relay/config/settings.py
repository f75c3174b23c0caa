"""The settings of one app, as the TOML file gives them; pure values, checked when made.

relay.config.settings_file reads the file; here is what may stand in it, with units, defaults
and reasons. `relay config show` prints it all, secrets hidden.
"""

from __future__ import annotations

import re
import socket
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field, field_validator, model_validator

from relay import names
from relay.config.allowed_tables import DESCRIPTION, Patterns, Targets
from relay.config.server_settings import Brokers, ClickHouse, Kafka, Section, SourceKafka

__all__ = [
    "Block",
    "Brokers",
    "ClickHouse",
    "Kafka",
    "Loader",
    "Relay",
    "Settings",
    "Source",
    "SourceKafka",
    "TableBlock",
    "TableLoad",
]

Seconds = Annotated[float, Field(gt=0, le=86_400)]
Bytes = Annotated[int, Field(gt=0)]
MEMBER = r"^[A-Za-z0-9._-]{1,100}$"
TRANSFORM = r"^([A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*)?$"
ELSEWHERE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""How the URL of a checkpoint begins that is on a file system which only Spark knows."""
T = TypeVar("T")


def _check_names(tables: dict[str, T]) -> dict[str, T]:
    for table in tables:
        if not names.is_table_name(table):
            raise ValueError(f"not a table name: {table!r}")
    return tables


ByTable = Annotated[dict[str, T], AfterValidator(_check_names)]
"""Settings of single tables, by database.table."""


class Source(Section):
    """The multi-table topic."""

    topic: str = Field(
        description="topic that the relay reads rows from; the relay never creates it",
        examples=["rows"],
    )
    framing: Literal["batch", "row"] = Field(
        "batch",
        description="a message's value. batch: it is a RowBatch. row: it is a single row message",
    )
    unknown_fields: Literal["dead", "ignore"] = Field(
        "dead",
        description="what happens to a row that has a field number which its table never had, "
        "because the producer was changed before the table. dead: the whole message becomes a "
        "dead letter, and can be replayed once the column exists. ignore: the row is loaded "
        "without the value, which is lost. Either way the field numbers are counted and logged",
    )
    all_dead: Literal["stop", "continue"] = Field(
        "stop",
        description="what the relay does if none of the first 100 messages can become rows, which "
        "usually means a wrong topic or format. stop: the relay ends before it commits anything, "
        "and says what the messages look like. continue: they become dead letters. Once one "
        "message of this app has become a row, the relay never stops for this reason",
    )
    start: Literal["earliest", "latest"] | None = Field(
        None,
        description="where the relay begins in a partition for which it has no committed offset. "
        "There is no default: earliest may load rows again that you have already, latest skips "
        "what is in the topic, so somebody has to choose",
        examples=["earliest"],
    )
    tables: Patterns = Field([], description=DESCRIPTION, examples=[["shop.*", "dims.countries"]])
    kafka: SourceKafka = Field(default_factory=SourceKafka)


class TableBlock(Section):
    """Settings of one table's blocks."""

    max_age_seconds: Seconds = Field(
        description="this table's own block.max_age_seconds; a table with few rows can wait for "
        "minutes"
    )


class Block(Section):
    """When a buffer is sealed into a block."""

    max_bytes: Bytes = Field(
        10_000_000, description="a buffer is sealed when it holds this many bytes of rows"
    )
    max_rows: Annotated[int, Field(gt=0)] = Field(
        1_000_000, description="a buffer is sealed when it holds this many rows"
    )
    max_decoded_bytes: Bytes = Field(
        64_000_000,
        description="a buffer is sealed when its rows take about this many bytes as columns, where "
        "a field that a row, or a tuple in its lists, leaves out takes as much as one that it "
        "sets; a larger buffer becomes several blocks. A message whose rows alone take more than "
        "four times this becomes a dead letter. Relay, loader and ClickHouse each hold a block as "
        "columns. Where the rows take no more than twice their messages' bytes, only these bound a "
        "block, up to those four times",
    )
    max_age_seconds: Seconds = Field(
        0.75,
        description="a buffer is sealed when its oldest message was polled this long ago. "
        "Buffers that would be due within 0.5 s are sealed together with it. While the relay is "
        "catching up, because every poll for this long was at least half full, the limit is ten "
        "times larger",
    )
    max_per_second: Annotated[float, Field(gt=0)] = Field(
        44.0,
        description="how many INSERTs of up to 1000 rows the app's relays together make due per "
        "second over all tables; a relay's share of them is its share of the source's partitions. "
        "A larger INSERT counts for less, and all partitions of a table count as one where "
        "the loader may insert their blocks together. Above this rate the quietest tables wait "
        "longer, because ClickHouse suffers from many small INSERTs",
    )
    chunk_bytes: Bytes = Field(
        900_000,
        description="a block is cut into chunks that stay below this compressed size; keep it "
        "below max.message.bytes of the block topics",
    )
    tables: ByTable[TableBlock] = Field(
        default_factory=dict,
        description="settings of single tables, by database.table",
        examples=[{"shop.countries": {"max_age_seconds": 300.0}}],
    )


class Relay(Section):
    """The relay process."""

    member: str = Field(
        default_factory=socket.gethostname,
        pattern=MEMBER,
        description="name of this process; its transactional id and its static membership of the "
        "consumer group carry it, so no two processes may share it. Default: the host name",
        examples=["relay-0"],
    )
    commit_interval_seconds: Seconds = Field(
        0.25, description="shortest time between two transactions"
    )
    max_buffer_bytes: Bytes = Field(
        512_000_000,
        description="how many bytes of rows, keys and headers all buffers may hold together; "
        "beyond it the largest are sealed first. All tables share this memory: with hundreds of "
        "tables and a backlog it keeps blocks small, and a small block costs as much as a large "
        "one",
    )
    max_reread: Annotated[int, Field(gt=0)] = Field(
        1_000_000,
        description="how many offsets of a partition a restart may have to read again; beyond it "
        "the oldest buffers are sealed first. A partition with messages that are held back is "
        "not polled beyond it",
    )
    flush_point_interval_seconds: Seconds = Field(
        300.0,
        description="time between flush points. At a flush point all buffers of a partition are "
        "sealed, so that the verifier can compare its counts",
    )
    journal_keepalive_seconds: Seconds = Field(
        3600.0,
        description="an idle partition gets a new journal record this often. A take-over reads "
        "the last record, so keep this far below retention.ms of the journal",
    )
    transaction_timeout_seconds: Annotated[float, Field(ge=1, le=900)] = Field(
        40.0,
        description="time after which the brokers abort an open transaction; must be below "
        "session_timeout_seconds",
    )
    session_timeout_seconds: Annotated[float, Field(ge=1, le=1800)] = Field(
        45.0, description="time without a heartbeat after which a relay loses its partitions"
    )
    schema_refresh_seconds: Seconds = Field(
        2.0,
        description="time between two queries for the tables' columns in ClickHouse; behind one "
        "that took long, 20 times as long (4 times while it finds out which database is silent), "
        "up to a minute",
    )
    wait_for_servers_seconds: Annotated[float, Field(ge=0)] = Field(
        60.0,
        description="how long to wait at start for servers that do not answer; 0 waits for ever. "
        "A relay that has started always waits for ever",
    )

    @model_validator(mode="after")
    def _transaction_ends_first(self) -> Relay:
        if self.transaction_timeout_seconds >= self.session_timeout_seconds:
            raise ValueError(
                f"transaction_timeout_seconds ({self.transaction_timeout_seconds:g}) must be "
                f"below session_timeout_seconds ({self.session_timeout_seconds:g}): a stalled "
                "relay's transaction must end before another relay gets its partitions"
            )
        return self


class TableLoad(Section):
    """How one table's blocks are loaded."""

    transform: str = Field(
        pattern=TRANSFORM,
        description="this table's own loader.transform; empty: no transform for this table",
    )


class Loader(Section):
    """The Spark job."""

    database: str = Field("relay", description="ClickHouse database that holds the ledger table")
    master: str = Field("local[*]", description="URL of the Spark master")
    checkpoint: str = Field(  # a Path would take a slash out of s3a://bucket
        description="directory of Spark's checkpoint, or the URL of one on a file system that "
        "Spark knows. Nothing is lost if only this directory is lost: the ledger decides where to "
        "begin",
        examples=["checkpoint"],
    )
    blocks_per_batch: Annotated[int, Field(gt=0)] = Field(
        256,
        description="largest number of blocks in a micro-batch. A block of less than 1 MiB of rows "
        "counts as a part of one, at least an eighth",
    )
    # At 0.2 s a micro-batch of 0.65 s was one of 0.8, just longer than blocks need to be sealed:
    # the loader fell behind them, and caught up, again and again.
    trigger_seconds: Annotated[float, Field(ge=0)] = Field(
        0.05,
        description="micro-batches begin at multiples of this time; 0 begins the next one at once",
    )
    block_column: str = Field(
        "_block",
        description="name of the String column that the loader fills with the block id in tables "
        "that have it; fixed for the life of an app",
    )
    insert_timeout_seconds: Seconds = Field(300.0, description="how long one INSERT may take")
    rejected: Literal["park", "dead"] = Field(
        "park",
        description="what the loader does with messages whose rows only the INSERT refuses, for a "
        "CHECK or an expression of the table, while it loads the rest of their block. park: they "
        "wait for a person. dead: each becomes a dead letter once, as messages do that cannot "
        "become rows. For dead the loader's user needs the right to read the source topic and to "
        "write dead letters: `relay doctor --grants` prints the commands",
    )
    wait_for_servers_seconds: Annotated[float, Field(ge=0)] = Field(
        0.0,
        description="how long to wait for servers that do not answer, and how long to begin again "
        "where Spark's processes start too slowly on a busy machine; 0 waits for ever",
    )
    transform: str = Field(
        "",
        pattern=TRANSFORM,
        description="module:function that turns a block's rows (a pyarrow.RecordBatch) into the "
        "rows to insert. It must return the same rows for the same input. Spark's workers import "
        "and run it. Empty: no transform",
    )
    tables: ByTable[TableLoad] = Field(
        default_factory=dict,
        description="settings of single tables, by database.table",
        examples=[{"shop.countries": {"transform": "shop_rows:without_test_rows"}}],
    )


class Settings(Section):
    """All settings of one app, of its relays and its loader."""

    app: str = Field(
        description="name of this app; prefix of its topics, consumer group and transactional ids",
        examples=["shop"],
    )
    kafka: Kafka
    source: Source
    clickhouse: ClickHouse
    block: Block = Field(default_factory=Block)
    relay: Relay = Field(default_factory=Relay)
    loader: Loader

    @field_validator("app")
    @classmethod
    def _is_app(cls, app: str) -> str:
        if not names.is_app_name(app):
            raise ValueError(f"use up to 40 letters, digits, _ and -, not {app!r}")
        return app

    @property
    def crosses(self) -> bool:
        """Whether the source topic is in another cluster than all that the relay writes."""
        return bool(self.source.kafka.bootstrap)

    @property
    def source_kafka(self) -> Brokers:
        """How to reach the source topic and the relay's group."""
        return self.source.kafka if self.crosses else self.kafka

    def targets(self) -> Targets:
        """Return which tables rows of this app may go into."""
        return Targets(self.loader.database, self.source.tables)

    def kafka_of(self, topic: str) -> Brokers:
        """Return how to reach a topic: the source, or one that the app writes."""
        return self.source_kafka if topic == self.source.topic else self.kafka
