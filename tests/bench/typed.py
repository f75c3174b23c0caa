"""What a user of Spark would write instead: rows with their types through the JVM.

Receives a source topic and a ClickHouse endpoint as one JSON argument; reads all that the topic
holds with Spark's Kafka connector, parses the protobuf rows in the JVM (from_protobuf, explode),
and hands each partition's rows as Arrow to clickhouse-connect. No guarantee at all. A process of
its own, started by tests.bench.contenders; ends when all is inserted.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

import clickhouse_connect
import pyarrow as pa
from grpc_tools import protoc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.protobuf.functions import from_protobuf

from relay import names, schema
from tests.bench import rows

_BATCH_ROWS = 120_000
"""As many as the product's blocks have by default."""
_OF_TYPE: dict[str, Callable[[Column], Column]] = {
    "Date": f.date_from_unix_date,
    "DateTime64(3)": f.timestamp_millis,
}
"""What a column of ClickHouse wants instead of the integer in its row message."""


@dataclass(frozen=True, slots=True)
class Order:
    """What to move; the tables are those of tests.bench.rows.

    Attributes:
        jars: of Spark's Kafka connector and its protobuf functions.
    """

    bootstrap: str
    topic: str
    clickhouse_url: str
    jars: list[str]

    def argument(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))


def main(order: Order) -> None:
    """Moves everything, one table after the other."""
    spark = (
        SparkSession.builder.master(f"local[{os.cpu_count()}]")
        .config("spark.jars", ",".join(order.jars))
        .config("spark.ui.enabled", value=False)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", _BATCH_ROWS)
        .getOrCreate()
    )
    messages = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", order.bootstrap)
        .option("subscribe", order.topic)
        .option("includeHeaders", value=True)
        .load()
    )
    for table in rows.TABLES:
        inserted = _typed(messages, table).mapInArrow(
            _insert(order.clickhouse_url, table), "n long"
        )
        inserted.agg(f.sum("n")).collect()
    spark.stop()


def _typed(messages: DataFrame, table: str) -> DataFrame:
    """The table's rows, a column each."""
    first = schema.evolve(None, table, "", rows.COLUMNS)
    assert first is not None, "a new table always has a first schema"
    parsed = from_protobuf(
        f.col("value"), f"{table}.RowBatch", binaryDescriptorSet=_descriptor(first)
    )
    wanted = [
        _OF_TYPE.get(column.type, lambda it: it)(f.col(f"row.{column.name}")).alias(column.name)
        for column in rows.COLUMNS
    ]
    header = f.struct(f.lit("table").alias("key"), f.encode(f.lit(table), "utf-8").alias("value"))
    of_table = messages.where(f.array_contains(f.col("headers"), header))
    return of_table.select(f.explode(parsed["rows"]).alias("row")).select(*wanted)


def _descriptor(of: schema.TableSchema) -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        source, compiled = Path(directory, "rows.proto"), Path(directory, "rows.desc")
        source.write_text(schema.proto_text(of))
        status = protoc.main(
            ["protoc", f"-I{directory}", f"--descriptor_set_out={compiled}", str(source)]
        )
        assert status == 0, "what the product generates compiles"
        return compiled.read_bytes()


def _insert(url: str, table: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """In a worker of Spark's: its partition's rows, in INSERTs of many."""
    server = urlsplit(url)
    database, name = names.split_table(table)

    def insert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        client = clickhouse_connect.get_client(
            host=server.hostname or "127.0.0.1", port=server.port or 8123, compress=False
        )
        for batch in batches:
            if batch.num_rows:
                day = batch.schema.get_field_index("day")
                # ClickHouse's Arrow takes a Date as days.
                days = batch.column(day).cast(pa.int32()).cast(pa.uint16())
                made = pa.Table.from_batches([batch.set_column(day, "day", days)])
                client.insert_arrow(name, made, database=database, settings={"async_insert": 0})
            yield pa.RecordBatch.from_pydict({"n": [batch.num_rows]})

    return insert


if __name__ == "__main__":
    main(Order(**json.loads(sys.argv[1])))
