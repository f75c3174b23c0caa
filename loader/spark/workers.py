"""A micro-batch's blocks spread over Spark's worker processes, and what runs there.

Receives blocks, gives one outcome per block. Rows of tables never pass through Spark:
loader.blocks.worker fetches and inserts them. `load` is pickled by name, so that the worker kept
below is one per process and lives over tasks.

    python -m loader.spark.workers WORKER-MODULE

is the daemon that Spark starts, and that forks those processes: pyspark's own, but for
their end. It must have no threads, so nothing heavy is imported before the fork.
"""

from __future__ import annotations

import gc
import socket
from functools import partial
from typing import TYPE_CHECKING

from pyspark import daemon

from loader.spark_child import Traceback

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from pyspark.sql import SparkSession

    from loader.blocks.attempt import Outcome
    from loader.blocks.worker import Worker
    from relay.config.settings import Settings
    from relay.records_pb2 import Block

TASK_BYTES = 128 << 20
"""Of a task's rows (loader.core.block_size)."""
AT_ONCE = 2
"""INSERTs that a task of small blocks sends at once."""
SMALL_BYTES = 8 << 20
"""Of a micro-batch's rows, likewise, that one process makes INSERTs of as fast as it would beside
others."""
_workers: dict[str, Worker] = {}
"""By app: Spark gives one process tasks of all."""


def attempt(
    spark: SparkSession,
    settings: Settings,
    blocks: Collection[Block],
    new: Collection[str] = (),
    beside: int = 1,
    until: int = 0,
) -> list[Outcome]:
    """Attempt each block once in the worker processes; return the outcomes.

    Spark's slots are shared among `beside` apps: with more tasks than its share, one whose server
    is away would hold up the others. `new` and `until`: as loader.blocks.worker.Worker.load.
    """
    from loader.blocks.block_order import near, pieces  # noqa: PLC0415 - heavy, see above
    from loader.core.block_size import rows_size  # noqa: PLC0415

    ordered = near(blocks)
    values = [block.SerializeToString() for block in ordered]
    slots = spark.sparkContext.defaultParallelism
    size = sum(map(rows_size, blocks))
    tasks = shares(len(values), slots, size)
    if beside > 1:
        tasks = min(tasks, max(slots // beside, 1))
    at_once = inserts_at_once(len(values), tasks, size)
    tasks = -(-tasks // at_once)
    # Numbers, and the blocks with the function: an RDD of Python objects would be written to a
    # file first. A data frame would be planned and compiled again for every micro-batch, which
    # takes Spark about as long as everything else of it.
    numbers = pieces(ordered, tasks)
    spread = spark.sparkContext.parallelize(numbers, len(numbers))
    known = frozenset(new), until, at_once
    return spread.mapPartitions(partial(load, settings, values, known)).collect()


def shares(blocks: int, workers: int, size: int = 0) -> int:
    """Return into how many tasks to divide the blocks: a multiple of the workers.

    Small blocks are claimed together, as many as one statement takes. Of large ones a task has
    few, and each worker several tasks, because they do not take equally long. `size` is of all
    blocks' rows, in bytes (loader.core.block_size).
    """
    from loader.blocks.worker import TOGETHER  # noqa: PLC0415 - heavy, see above

    rounds = max(-(-blocks // (workers * TOGETHER)), -(-size // (workers * TASK_BYTES)))
    return min(blocks, rounds * workers)


def inserts_at_once(blocks: int, tasks: int, size: int) -> int:
    """Return how many INSERTs a task sends at once, and so how many tasks' work it does.

    Each task looks at its tables, claims and marks, which costs ClickHouse as much as three INSERTs
    of small blocks. Of those, one process sends as fast as two. `tasks` are those that the
    micro-batch would have with one INSERT at a time; `size`: as of `shares`.
    """
    from loader.blocks.worker import TOGETHER  # noqa: PLC0415 - heavy, see above

    small = blocks <= TOGETHER and size <= SMALL_BYTES
    return min(tasks, AT_ONCE) if small else 1


def load(
    settings: Settings,
    blocks: Sequence[bytes],
    known: tuple[Collection[str], int, int],
    numbers: Iterator[range],
) -> Iterator[Outcome]:
    """Attempt those of `blocks` that the ranges name; yield the outcomes."""
    from relay import log  # noqa: PLC0415 - as below
    from relay.records_pb2 import Block  # noqa: PLC0415 - heavy, see above

    log.in_child()  # lines of the Kafka client, too, have their time and level
    named = [Block.FromString(blocks[number]) for some in numbers for number in some]
    yield from _attempt(settings, named, *known)


def _attempt(
    settings: Settings,
    blocks: list[Block],
    new: Collection[str],
    until: int = 0,
    at_once: int = 1,
) -> list[Outcome]:
    from loader.blocks.attempt import REFUSED, Outcome, retry  # noqa: PLC0415 - heavy, see above
    from loader.blocks.worker import Worker  # noqa: PLC0415
    from relay.clickhouse.errors import About  # noqa: PLC0415
    from relay.errors import Refused, Unavailable  # noqa: PLC0415

    try:
        if settings.app not in _workers:
            _workers[settings.app] = Worker(settings)
            keep()
        outcomes = _workers[settings.app].load(blocks, new, until=until, at_once=at_once)
    except Unavailable as error:
        return retry(blocks, error.message)
    except Refused as error:  # an exception would reach the driver as text with a traceback
        return [Outcome(block.id, REFUSED, block.rows, str(error)) for block in blocks]
    if any(result.about == About.CONNECTION for result in outcomes):
        _workers.pop(settings.app).close()  # the next one asks the server what it knows
    return outcomes


def keep() -> None:
    """Freeze the present objects, so that the garbage collector skips them.

    Spark's daemon searches behind every task, through modules alone for 44 ms: of the processor
    time of a worker that loads small blocks, two fifths.
    """
    gc.collect()
    gc.freeze()


def until_closed(
    work: Callable[[socket.socket, bool], int],
) -> Callable[[socket.socket, bool], int]:
    """Return pyspark.daemon.worker, changed to end quietly when its connection closes.

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
    daemon.traceback = Traceback  # type: ignore[assignment, attr-defined]
    daemon.manager()
