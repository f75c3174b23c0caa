"""What a user of Spark would write instead of the loader: rows with types, through the JVM.

Receives an app's configuration file and a way, as arguments; reads all blocks of each table with
the loader's own fetcher in a Python data source whose rows have typed columns, and hands each
partition's rows to clickhouse-connect: `rows` by foreachPartition, as Spark's Row objects,
`columns` by mapInArrow, as Arrow. No guarantee at all. A process of its own, started by
tests.bench.contenders; ends when all is inserted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

import pyarrow as pa
from clickhouse_connect.driver.client import Client
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from loader.blocks.fetch import Fetcher
from relay import names
from relay.config import settings_file
from relay.config.server_settings import ClickHouse
from relay.records_pb2 import Block
from tests import reach
from tests.bench import journal, rows

_COLUMNS = (
    "event long, account long, at timestamp, day date, kind string, name string, amount double, "
    "quantity int, ok boolean, note string"
)
_ARROW = pa.schema([
    ("event", pa.int64()),
    ("account", pa.int64()),
    ("at", pa.timestamp("us", "UTC")),
    ("day", pa.date32()),
    ("kind", pa.string()),
    ("name", pa.string()),
    ("amount", pa.float64()),
    ("quantity", pa.int32()),
    ("ok", pa.bool_()),
    ("note", pa.string()),
])  # fmt: skip
_BATCH_ROWS = 150_000
"""An INSERT is of a block then, as the loader's."""


class Blocks(InputPartition):
    """Some of a table's blocks, as they stand in the journal."""

    def __init__(self, blocks: list[bytes]) -> None:
        self.blocks = blocks


class BlockReader(DataSourceReader):
    """Of one table; as many partitions as there are cores."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._file, self._table = Path(options["config"]), options["table"]

    def partitions(self) -> list[InputPartition]:
        """The table's blocks, dealt out."""
        settings = settings_file.load(self._file)
        commits = journal.commits(settings.kafka.bootstrap, settings.app)
        blocks = [
            b.SerializeToString() for c in commits for b in c.blocks if b.table == self._table
        ]
        many = os.cpu_count() or 1
        return [Blocks(blocks[n::many]) for n in range(many)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a worker: the rows, with types that Spark has."""
        assert isinstance(partition, Blocks), "what `partitions` gave"
        fetcher = Fetcher(settings_file.load(self._file).kafka)
        for block in partition.blocks:
            yield _typed(fetcher.fetch(Block.FromString(block)))
        fetcher.close()


class BlockSource(DataSource):
    """spark.read.format("blocks"), with the options `config` and `table`."""

    @classmethod
    def name(cls) -> str:
        """Of the format."""
        return "blocks"

    def schema(self) -> str:
        """Of tests.bench.rows, in Spark's types."""
        return _COLUMNS

    def reader(self, schema: object) -> DataSourceReader:  # noqa: ARG002 - there is one
        """Of one query."""
        return BlockReader(self.options)


def _typed(batch: pa.RecordBatch) -> pa.RecordBatch:
    days = batch.column("day").cast(pa.int32())
    arrays = [days if name == "day" else batch.column(name) for name in _ARROW.names]
    made = [array.cast(kind) for array, kind in zip(arrays, _ARROW.types, strict=True)]
    return pa.RecordBatch.from_arrays(made, schema=_ARROW)


class Sink:
    """One table, as a worker reaches it."""

    def __init__(self, server: ClickHouse, table: str) -> None:
        self._server, self._name = server, names.split_table(table)

    def columns(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For mapInArrow; gives how many rows were inserted."""
        client = self._client()
        for batch in batches:
            # ClickHouse takes days as a Date, and not Arrow's date of four bytes.
            days = batch.column("day").cast(pa.int32()).cast(pa.uint16())
            made = pa.table(batch).set_column(_ARROW.names.index("day"), "day", days)
            client.insert_arrow(
                self._name[1], made, database=self._name[0], settings={"async_insert": 0}
            )
            yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows]})

    def rows(self, given: Iterator[Row]) -> None:
        """For foreachPartition."""
        client = self._client()
        while some := list(islice(given, _BATCH_ROWS)):
            client.insert(
                self._name[1],
                some,
                column_names=_ARROW.names,
                database=self._name[0],
                settings={"async_insert": 0},
            )

    def _client(self) -> Client:
        return reach.client(self._server, compress=False)


def main(file: str, way: str) -> None:
    """Moves everything, one table after the other."""
    # Workers would be the `python3` of the PATH, which need not be that of this environment.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(f"local[{os.cpu_count()}]")
        .config("spark.ui.enabled", value=False)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", _BATCH_ROWS)
        .getOrCreate()
    )
    spark.dataSource.register(BlockSource)
    server = settings_file.load(Path(file)).clickhouse
    for table in rows.TABLES:
        read = spark.read.format("blocks").option("config", file).option("table", table).load()
        sink = Sink(server, table)
        if way == "rows":
            read.foreachPartition(sink.rows)
        else:
            read.mapInArrow(sink.columns, "rows long").agg(f.sum("rows")).collect()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
