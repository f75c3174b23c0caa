"""The settings of one app, as the TOML file gives them; pure values, checked when made.

relay.config.settings_file reads the file; here is what may stand in it, with units, defaults
and reasons. `relay config show` prints it all, secrets hidden.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field, field_validator, model_validator

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
T = TypeVar("T")


def _by_table(tables: dict[str, T]) -> dict[str, T]:
    """Settings whose keys are names of tables.

    Raises:
        ValueError: one is not.
    """
    for table in tables:
        if not names.is_table_name(table):
            raise ValueError(f"not a table name: {table!r}")
    return tables


class Source(Section):
    """The multi-table topic."""

    topic: str = Field(description="read, never created by the relay", examples=["rows"])
    framing: Literal["batch", "row"] = Field(
        "batch", description="batch: value is a RowBatch; row: value is one bare row message"
    )
    unknown_fields: Literal["dead", "ignore"] = Field(
        "dead",
        description="a row with a field number that its table never had, because a producer is "
        "ahead of the table: dead keeps its message whole among the dead letters, to be "
        "replayed once the column is there; ignore loads the row without that value, which is "
        "lost. Both count and log the numbers",
    )
    all_dead: Literal["stop", "continue"] = Field(
        "stop",
        description="where none of the first 100 messages can become rows, and this app never had "
        "one that could: stop, before they are committed, and say what they look like, as it is "
        "probably another topic or another format; continue makes them dead letters, for a "
        "source that may be all dead at first. An app that once had a row never stops for it",
    )
    start: Literal["earliest", "latest"] | None = Field(
        None,
        description="where a partition without a committed floor begins; no default, because "
        "either answer loses or repeats something unless somebody chose it",
        examples=["earliest"],
    )
    tables: Patterns = Field([], description=DESCRIPTION, examples=[["shop.*", "dims.countries"]])
    kafka: SourceKafka = Field(default_factory=SourceKafka)


class TableBlock(Section):
    """Settings of one table's blocks."""

    max_age_seconds: Seconds = Field(
        description="instead of block.max_age_seconds: a quiet table can wait for minutes"
    )


class Block(Section):
    """When a buffer is sealed into a block."""

    max_bytes: Bytes = Field(10_000_000, description="row bytes in a block")
    max_rows: Annotated[int, Field(gt=0)] = Field(1_000_000, description="rows in a block")
    max_age_seconds: Seconds = Field(
        0.75,
        description="of the oldest message in the buffer; what is due soon goes along. Ten times "
        "as old while the relay is behind: when every poll for so long was at least half full",
    )
    max_per_second: Annotated[float, Field(gt=0)] = Field(
        50.0,
        description="inserts of up to 1000 rows that are made due per second over all tables of a "
        "relay (a larger one counts for less; all partitions of a table are one, where the loader "
        "may insert their blocks together); above it the age of the quietest tables stretches, "
        "because ClickHouse suffers from many small inserts",
    )
    chunk_bytes: Bytes = Field(
        900_000, description="compressed size a chunk stays below; under max.message.bytes"
    )
    tables: dict[str, TableBlock] = Field(
        default_factory=dict,
        description="settings of single tables, by database.table",
        examples=[{"shop.countries": {"max_age_seconds": 300.0}}],
    )

    @field_validator("tables")
    @classmethod
    def _are_tables(cls, tables: dict[str, TableBlock]) -> dict[str, TableBlock]:
        return _by_table(tables)


class Relay(Section):
    """The relay process."""

    member: str = Field(
        default_factory=socket.gethostname,
        pattern=MEMBER,
        description="identity of this process: names its transactional id and static group "
        "membership; two processes never share one. Default: the host name",
        examples=["relay-0"],
    )
    commit_interval_seconds: Seconds = Field(0.25, description="least time between transactions")
    max_buffer_bytes: Bytes = Field(
        512_000_000,
        description="over all buffers; largest sealed first. Tables share it: under a backlog it "
        "bounds the blocks of hundreds, and a small block costs what a large one does",
    )
    max_reread: Annotated[int, Field(gt=0)] = Field(
        1_000_000, description="offsets from floor to position; oldest buffers sealed first"
    )
    flush_point_interval_seconds: Seconds = Field(
        300.0, description="between forced flush points, at which the verifier can count"
    )
    journal_keepalive_seconds: Seconds = Field(
        3600.0,
        description="an idle partition is recorded again so often; far below retention.ms of the "
        "journal, which a take-over reads",
    )
    transaction_timeout_seconds: Annotated[float, Field(ge=1, le=900)] = Field(
        40.0, description="must be below session_timeout_seconds"
    )
    session_timeout_seconds: Annotated[float, Field(ge=1, le=1800)] = Field(
        45.0, description="until a relay that is silent loses its partitions"
    )
    schema_refresh_seconds: Seconds = Field(
        2.0, description="between looks at the tables' columns in ClickHouse"
    )
    wait_for_servers_seconds: Annotated[float, Field(ge=0)] = Field(
        60.0,
        description="how long to wait at start for servers that are away, 0 for ever; a relay "
        "that has started waits for ever",
    )

    @model_validator(mode="after")
    def _transaction_ends_first(self) -> Relay:
        if self.transaction_timeout_seconds >= self.session_timeout_seconds:
            raise ValueError(
                f"transaction_timeout_seconds ({self.transaction_timeout_seconds:g}) must be below "
                f"session_timeout_seconds ({self.session_timeout_seconds:g}): a stalled relay's "
                "transaction has to end before its partitions move on"
            )
        return self


class TableLoad(Section):
    """How one table's blocks are loaded."""

    transform: str = Field(
        pattern=TRANSFORM, description="instead of loader.transform; empty: none for this table"
    )


class Loader(Section):
    """The Spark job."""

    database: str = Field("relay", description="of the ledger table in ClickHouse")
    master: str = Field("local[*]", description="Spark master")
    checkpoint: Path = Field(
        description="directory of Spark's checkpoint; losing it alone costs nothing",
        examples=["checkpoint"],
    )
    blocks_per_batch: Annotated[int, Field(gt=0)] = Field(
        256, description="blocks planned per micro-batch"
    )
    # At 0.2 s a micro-batch of 0.65 s was one of 0.8, just longer than blocks need to be sealed:
    # the loader fell behind them, and caught up, again and again.
    trigger_seconds: Annotated[float, Field(ge=0)] = Field(
        0.05, description="micro-batches begin at multiples of it"
    )
    block_column: str = Field(
        "_block", description="String column that gets the block id, in tables that have it"
    )
    insert_timeout_seconds: Seconds = Field(300.0, description="of one INSERT")
    rejected: Literal["park", "dead"] = Field(
        "park",
        description="messages that only the INSERT finds to be bad, as a CHECK of the table or an "
        "expression of it refuses their rows, while the rest of their block is loaded: park waits "
        "for a person to settle them; dead makes them dead letters, each once, as the relay does "
        "with what cannot become rows. For dead the loader's user has to read the source topic and "
        "write the dead letters: `relay doctor --grants` prints the rights",
    )
    wait_for_servers_seconds: Annotated[float, Field(ge=0)] = Field(
        0.0, description="how long to wait for servers that are away; 0 waits for ever"
    )
    transform: str = Field(
        "",
        pattern=TRANSFORM,
        description="module:function that makes a block's rows (a pyarrow.RecordBatch) into "
        "others before they are inserted, always the same from the same ones; it is imported and "
        "run where Spark's workers are. Empty: none",
    )
    tables: dict[str, TableLoad] = Field(
        default_factory=dict,
        description="settings of single tables, by database.table",
        examples=[{"shop.countries": {"transform": "shop_rows:without_test_rows"}}],
    )

    @field_validator("tables")
    @classmethod
    def _are_tables(cls, tables: dict[str, TableLoad]) -> dict[str, TableLoad]:
        return _by_table(tables)


class Settings(Section):
    """One app: everything relay and loader are told."""

    app: str = Field(description="prefix of topics, group and transactional ids", examples=["shop"])
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
