"""A micro-batch's blocks spread over Spark's worker processes, and what runs there.

Receives blocks, gives one row per block. Rows of tables never pass through Spark:
loader.work fetches and inserts them. `load` is pickled by name, so that the worker kept
below is one per process and lives over tasks.

    python -m loader.task WORKER-MODULE

is the daemon that Spark starts, and that forks those processes: pyspark's own, but for
their end. It must have no threads, so nothing heavy is imported before the fork.
"""

from __future__ import annotations

import socket
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark import daemon

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from loader.work import Worker
    from relay.records_pb2 import Block
    from relay.settings import Settings

OUTCOMES = "block string, outcome string, rows bigint, reason string"
REFUSED = "refused"
"""The outcome where ClickHouse denies its user the work; the reason has the next step in its
second line."""
_worker: Worker | None = None


def attempt(
    spark: SparkSession, settings: Settings, blocks: Collection[Block]
) -> list[tuple[str, str, int, str]]:
    """OUTCOMES of one attempt at each block, in the worker processes."""
    from loader.work import near  # noqa: PLC0415 - heavy, see above

    values = [block.SerializeToString() for block in near(blocks)]
    tasks = shares(len(values), spark.sparkContext.defaultParallelism)
    # Numbers, and the blocks with the function: a data frame made from Python objects would
    # pass through a second Python process for each task.
    numbers = spark.range(0, len(values), 1, tasks)
    done = numbers.mapInArrow(partial(load, settings, values), OUTCOMES).collect()
    return [(row.block, row.outcome, row.rows, row.reason) for row in done]


def shares(blocks: int, workers: int) -> int:
    """Tasks for so many blocks: as many for each worker, of blocks that are claimed together.

    More than one for each, because they do not take equally long.
    """
    from loader.work import TOGETHER  # noqa: PLC0415 - heavy, see above

    rounds = -(-blocks // (workers * TOGETHER))
    return min(blocks, rounds * workers)


def load(
    settings: Settings, blocks: Sequence[bytes], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Attempts the blocks of each batch (column `id`: index in `blocks`); gives OUTCOMES."""
    import pyarrow as pa  # noqa: PLC0415 - heavy, see above

    from relay.records_pb2 import Block  # noqa: PLC0415

    fields: list[pa.Field[Any]] = [
        pa.field("block", pa.string()),
        pa.field("outcome", pa.string()),
        pa.field("rows", pa.int64()),
        pa.field("reason", pa.string()),
    ]
    for batch in batches:
        numbers: Any = batch.column("id").to_pylist()
        done = _attempt(settings, [Block.FromString(blocks[number]) for number in numbers])
        yield pa.RecordBatch.from_pylist(done, pa.schema(fields))


def _attempt(settings: Settings, blocks: list[Block]) -> list[dict[str, object]]:
    global _worker  # noqa: PLW0603 - one per process
    from loader.work import Worker  # noqa: PLC0415 - heavy, see above
    from relay.errors import Refused, Unavailable  # noqa: PLC0415

    def all_of(outcome: str, reason: str) -> list[dict[str, object]]:
        return [
            {"block": block.id, "outcome": outcome, "rows": block.rows, "reason": reason}
            for block in blocks
        ]

    try:
        if _worker is None:
            _worker = Worker(settings)
        done = _worker.load(blocks)
    except Unavailable as error:
        return all_of("retry", error.message)
    except Refused as error:  # an exception would reach the driver as text with a traceback
        return all_of(REFUSED, f"{error.message}\n{error.next_step}")
    return [
        {"block": one.block, "outcome": one.outcome, "rows": one.rows, "reason": one.reason}
        for one in done
    ]


def until_closed(
    work: Callable[[socket.socket, bool], int],
) -> Callable[[socket.socket, bool], int]:
    """pyspark.daemon.worker, that takes the end of the connection for the end of work.

    Spark closes the connections of idle workers when it ends, and when nothing was to do for
    a minute. pyspark reads that as a task that broke off, and prints a traceback.
    """

    def work_or_end(connection: socket.socket, authenticated: bool) -> int:  # noqa: FBT001 - pyspark's signature
        try:
            asked = connection.recv(1, socket.MSG_PEEK)
        except ConnectionError:
            asked = b""
        return work(connection, authenticated) if asked else 1

    return work_or_end


if __name__ == "__main__":
    daemon.worker = until_closed(daemon.worker)  # type: ignore[assignment]
    daemon.manager()
