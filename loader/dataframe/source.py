"""`spark.read.format("relay")`: reads the sealed blocks of a table as a typed DataFrame.

    from loader.dataframe import RelayDataSource

    spark.dataSource.register(RelayDataSource)
    orders = spark.read.format("relay").option("config", "relay.toml")
    orders.option("table", "shop.orders").option("since", "2026-11-01").load()

Reads Kafka alone, `read_committed`: the journal when the DataFrame is planned, in the driver's
Python; block topics in the executors, checked as the loader checks them. Rows are the blocks' as
producers sent them: what was left out is null, and neither ClickHouse's DEFAULTs nor a transform
were applied. Blocks that a rewind replaced are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from loader.blocks.block_order import AT_ONCE
from loader.blocks.fetch import Damaged, Fetcher
from loader.clickhouse.client import one_line
from loader.dataframe.options import ReadOptions, parse_options
from loader.dataframe.selection import concerns, groups, live, newest
from loader.dataframe.spark_types import converted, kind_of, spark_type, units
from loader.journal.reader import JournalPolling, RecordRows
from loader.journal.startup import topic_id
from relay import names
from relay.config.settings import Kafka
from relay.errors import ConfigError, Refused
from relay.records_pb2 import Block, Commit
from relay.schema.types.column_type import CLICKHOUSE_TYPE, recorded_type
from relay.schema.types.exact_cast import exact_cast, other_parts
from relay.schema.types.ticks import loses_units

_TYPE = "clickhouse"
"""In the metadata of a DataFrame's column: its ClickHouse type."""
BLOCK, PARTITION = "_block", "_partition"
"""With option metadata: the block's id, and the source partition its rows come from."""


class RelayDataSource(DataSource):
    """Spark's data source "relay", to be registered with a session."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "relay"

    def schema(self) -> spark.StructType:
        """Return the columns of the newest block that is asked for, else of the table's newest.

        Raises:
            ConfigError: as `asked`, or no block of the table is retained.
            Unavailable, Refused: as the brokers answer.
        """
        what = parse_options(self.options)
        blocks = _blocks(what)
        block = newest([one for one in blocks if what.wanted.takes(one)]) or newest(blocks)
        if block is None:
            raise ConfigError(
                f"the journal of {what.settings.app} holds no block of {what.wanted.table}",
                "wait for the first block, or give the schema yourself",
            )
        with closing(Fetcher(what.settings.kafka)) as fetcher:
            rows = fetcher.fetch(block)
        return table_schema(rows.schema, metadata=what.metadata)

    def reader(self, schema: spark.StructType) -> BlockReader:
        """Return plans and reads."""
        return BlockReader(parse_options(self.options), schema)


def table_schema(rows: pa.Schema, *, metadata: bool) -> spark.StructType:
    """Return Spark's columns of a block's rows; with `metadata`, BLOCK and PARTITION behind them.

    Raises:
        ValueError: a column's type is not known here; names both.
    """
    columns = spark.StructType()
    for field in rows:
        recorded = recorded_type(field)
        type_ = spark_type(kind_of(field.name, recorded))
        columns.add(field.name, type_, metadata={_TYPE: recorded})
    if metadata:
        columns.add(BLOCK, spark.StringType()).add(PARTITION, spark.IntegerType())
    return columns


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    """Return the DataFrame's columns for Arrow, each with the ClickHouse type that it stands for.

    A schema that a person gave names none.
    """
    types = {field.name: field.metadata.get(_TYPE, "") for field in schema.fields}
    fields = to_arrow_schema(schema, timezone="UTC")
    return pa.schema(
        [field.with_metadata({CLICKHOUSE_TYPE: types[field.name].encode()}) for field in fields]
    )


class BlockReader(DataSourceReader):
    """Read one DataFrame; made in the driver, sent to the executors."""

    def __init__(self, what: ReadOptions, schema: spark.StructType) -> None:
        self._what, self._schema = what, schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return groups of blocks, from the journal as it is now."""
        blocks = [one for one in _blocks(self._what) if self._what.wanted.takes(one)]
        return [
            InputPartition([block.SerializeToString() for block in group])
            for group in groups(blocks, self._what.partition_bytes)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a group, a batch for each block.

        Raises:
            Refused: a block is gone or damaged, or has a column of another type than the newest.
            Unavailable: Kafka did not deliver it.
        """
        blocks = [Block.FromString(one) for one in partition.value]
        wanted = arrow_schema(self._schema)
        with_rows = _rows(self._what.settings.kafka, blocks)
        return (shaped(rows, block, wanted) for block, rows in with_rows)


def _rows(kafka: Kafka, blocks: Sequence[Block]) -> Iterator[tuple[Block, pa.RecordBatch]]:
    with closing(Fetcher(kafka)) as fetcher:
        for number, block in enumerate(blocks, 1):
            try:
                yield block, fetcher.fetch(block, blocks[number : number + AT_ONCE])
            except Damaged as error:
                raise Refused(
                    f"block {block.id}: {error}", "leave the block out with option since or block"
                ) from error


def shaped(rows: pa.RecordBatch, block: Block, wanted: pa.Schema) -> pa.RecordBatch:
    """Return a block's rows in the DataFrame's columns; null where the block has not the column.

    Raises:
        Refused: a column was of another type then, and its values are not those of now.
    """
    indexes = {field.name: index for index, field in enumerate(rows.schema)}
    constant: dict[str, Any] = {BLOCK: block.id, PARTITION: block.partition}
    columns = []
    for field in wanted:
        if field.name in indexes:
            columns.append(_column(rows, indexes[field.name], block, field))
        else:
            value = pa.scalar(constant.get(field.name), field.type)
            columns.append(pa.repeat(value, rows.num_rows))
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _column(rows: pa.RecordBatch, at: int, block: Block, wanted: pa.Field[Any]) -> Any:
    field = rows.schema.field(at)
    was, now = recorded_type(field), recorded_type(wanted)
    kind = kind_of(field.name, was)
    array = converted(kind, rows.column(at))
    try:
        if loses_units(array.type, wanted.type) or (
            now and units(kind) != units(kind_of(field.name, now))
        ):
            raise pa.ArrowInvalid("the same number means another value")
        if others := other_parts(array.type, wanted.type, missing_as_null=True):
            raise pa.ArrowInvalid(others)
        return exact_cast(array, wanted.type)
    except pa.ArrowException as error:
        raise Refused(
            f"block {block.id}: column {field.name} was {was} when it was sealed, and cannot be "
            f"read as {now or wanted.type}: {one_line(error)}",
            "read this block alone (option block), or the blocks since the change (option since)",
        ) from error


def _blocks(what: ReadOptions) -> list[Block]:
    """Return the table's blocks, from the journal's oldest record to its end of now.

    Raises:
        Unavailable, Refused: as the brokers answer.
    """
    settings, table = what.settings, what.wanted.table
    journal = names.journal_topic(settings.app)
    topic_id(settings, journal)  # else one that is not there would read as an empty one

    def given(partition: int, offset: int, record: bytes) -> RecordRows:
        """Return the whole record, if it concerns the table."""
        concerned = concerns(Commit.FromString(record), table)
        return RecordRows([(partition, offset, record if concerned else None)])

    with closing(JournalPolling(settings.kafka, journal, given)) as polling:
        begin = {p: polling.watermarks(p)[0] for p in polling.partitions()}
        rows = polling.up_to(begin, polling.ends(), None)
    records = ((p, Commit.FromString(record)) for p, _, record in rows if record is not None)
    return live(records, table)
