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
import sys
import traceback
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark import daemon

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from loader.attempt import Outcome
    from loader.work import Worker
    from relay.records_pb2 import Block
    from relay.settings import Settings

OUTCOMES = (
    "block string, outcome string, rows bigint, reason string, fetch_seconds double, "
    "insert_seconds double, inserts bigint, failures bigint, repeats bigint, found bigint, "
    "queryable_ms bigint"
)
"""loader.attempt.Outcome, with its figures beside the rest."""
REFUSED = "refused"
"""The outcome where ClickHouse denies its user the work; the reason has the next step in its
second line."""
CLOSED = (ConnectionError, EOFError)
"""How a process that Spark started finds that Spark has closed its connection."""
_workers: dict[str, Worker] = {}
"""By app: Spark gives one process tasks of all."""


def attempt(
    spark: SparkSession, settings: Settings, blocks: Collection[Block], beside: int = 1
) -> list[Outcome]:
    """Outcomes of one attempt at each block, in the worker processes.

    Args:
        spark: runs it.
        settings: of the app.
        blocks: of its journal.
        beside: apps among which Spark's slots are shared. With more tasks than its share, one
            whose server is away would hold up the others.
    """
    from loader.attempt import Figures, Outcome  # noqa: PLC0415 - heavy, see above
    from loader.selection import near  # noqa: PLC0415

    values = [block.SerializeToString() for block in near(blocks)]
    slots = spark.sparkContext.defaultParallelism
    tasks = shares(len(values), slots)
    if beside > 1:
        tasks = min(tasks, max(slots // beside, 1))
    # Numbers, and the blocks with the function: a data frame made from Python objects would
    # pass through a second Python process for each task.
    numbers = spark.range(0, len(values), 1, tasks)
    done = numbers.mapInArrow(partial(load, settings, values), OUTCOMES).collect()
    return [
        Outcome(row.block, row.outcome, row.rows, row.reason, Figures(*row[4:])) for row in done
    ]


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

    arrow: dict[str, Any] = {"string": pa.string(), "bigint": pa.int64(), "double": pa.float64()}
    fields: list[pa.Field[Any]] = [
        pa.field(name, arrow[kind]) for name, kind in (one.split() for one in OUTCOMES.split(", "))
    ]
    for batch in batches:
        numbers: Any = batch.column("id").to_pylist()
        done = _attempt(settings, [Block.FromString(blocks[number]) for number in numbers])
        yield pa.RecordBatch.from_pylist(done, pa.schema(fields))


def _attempt(settings: Settings, blocks: list[Block]) -> list[dict[str, object]]:
    from loader.attempt import Outcome  # noqa: PLC0415 - heavy, see above
    from loader.work import Worker  # noqa: PLC0415
    from relay.errors import Refused, Unavailable  # noqa: PLC0415

    def all_of(outcome: str, reason: str) -> list[dict[str, object]]:
        return [_flat(Outcome(block.id, outcome, block.rows, reason)) for block in blocks]

    try:
        if settings.app not in _workers:
            _workers[settings.app] = Worker(settings)
        done = _workers[settings.app].load(blocks)
    except Unavailable as error:
        return all_of("retry", error.message)
    except Refused as error:  # an exception would reach the driver as text with a traceback
        return all_of(REFUSED, f"{error.message}\n{error.next_step}")
    return [_flat(one) for one in done]


def _flat(one: Outcome) -> dict[str, object]:
    """As one row of OUTCOMES."""
    row: dict[str, object] = asdict(one)
    del row["figures"]
    return row | asdict(one.figures)


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


class Traceback:
    """In the place of `traceback` in pyspark.daemon: says nothing of a lost connection to Spark.

    A worker may be at work, or just forked, when Spark ends and closes it. A task's own errors go
    to Spark over the connection, and not here.
    """

    format_exc = staticmethod(traceback.format_exc)

    @staticmethod
    def print_exc() -> None:
        """As traceback.print_exc."""
        if not isinstance(sys.exception(), CLOSED):
            traceback.print_exc()


if __name__ == "__main__":
    daemon.worker = until_closed(daemon.worker)  # type: ignore[assignment]
    daemon.traceback = Traceback  # type: ignore[assignment, attr-defined]
    daemon.manager()
