"""Writes the archive of the classes that Spark loads: starts a job like the loader's, and ends it.

The job is small, but it does whatever `loader run` does on its way to the first block: a stream of
a Python data source, a checkpoint, micro-batches, tasks in Python workers.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

from loader.spark import class_archive
from loader.spark.session import started
from relay.errors import MissingTool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

_ROWS = 3
_END_SECONDS = 120.0
"""The JVM writes some 150 MB when it ends: 5 s on an idle machine."""


class Counting(SimpleDataSourceStreamReader):
    """A source of a few numbers, a micro-batch each."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return the first number."""
        return {"number": 0}

    def read(self, start: dict[str, Any]) -> tuple[Iterator[tuple[int]], dict[str, Any]]:
        """Return the number at `start`, and where the next one is."""
        number = min(int(start["number"]) + 1, _ROWS)
        return iter([(number,)] if number > start["number"] else []), {"number": number}

    def readBetweenOffsets(  # noqa: N802 - as above
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Iterator[tuple[int]]:
        """Return the same numbers again."""
        return iter(
            [(number,) for number in range(int(start["number"]) + 1, int(end["number"]) + 1)]
        )


class CountingSource(DataSource):
    """Spark's name for it."""

    @classmethod
    def name(cls) -> str:
        """Return what `format` says."""
        return "block_relay_counting"

    def schema(self) -> str:
        """Return the columns."""
        return "number int"

    def simpleStreamReader(self, schema: object) -> Counting:  # noqa: ARG002, N802 - Spark's
        """Return the reader."""
        return Counting()


def prepare() -> Path:
    """Write the archive, in place of one that is there; return where it lies.

    Raises:
        MissingTool: Spark does not start, or its JVM writes no archive.
    """
    old = class_archive.written()
    part = class_archive.place(f"{os.getpid()}.part")
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        part.touch()
        part.unlink()
    except OSError as error:
        raise MissingTool(
            f"the archive cannot be written: {error}",
            "run it as the user who owns the Python environment",
        ) from error
    try:
        spark = started("block-relay prepare", "local[1,1]", class_archive.writing(part))
        _run(spark)
        _end(spark)
        archive = part.rename(class_archive.place(part.stat().st_size))
    except FileNotFoundError as error:
        raise MissingTool(
            f"Java wrote no archive of its classes: {error}",
            "loader run works without it; OpenJDK 17 and newer write one",
        ) from error
    finally:
        part.unlink(missing_ok=True)
    for one in old:
        if one != archive:  # a JVM that has it mapped keeps it
            one.unlink(missing_ok=True)
    return archive


def _run(spark: SparkSession) -> None:
    spark.dataSource.register(CountingSource)
    with tempfile.TemporaryDirectory(prefix="block-relay-") as checkpoint:
        rows = spark.readStream.format(CountingSource.name()).load()
        stream = rows.writeStream.foreachBatch(_on_batch).option("checkpointLocation", checkpoint)
        query = stream.trigger(processingTime="0 seconds").start()
        query.processAllAvailable()
        query.stop()


def _on_batch(frame: DataFrame, _number: int) -> None:
    numbers = [row["number"] for row in frame.collect()]
    if numbers:
        frame.sparkSession.sparkContext.parallelize(numbers, 1).mapPartitions(list).collect()


def _end(spark: SparkSession) -> None:
    """End the JVM as it ends by itself, and wait until it has written."""
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - its process has no other name
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):  # then there is no archive
        gateway.proc.wait(_END_SECONDS)
