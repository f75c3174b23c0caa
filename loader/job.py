"""The Spark job: micro-batches of sealed blocks, each settled before the next.

Receives rows of loader.journal_source, hands the blocks to loader.work in Spark's
worker processes, tries again what a server's absence left open, and writes the
position behind the batch into the ledger. Decides about no block itself.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark import SparkConf, SparkContext
from pyspark.errors import StreamingQueryException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from loader import journal_source
from loader.plan import LOADED, PARKED, settled
from loader.task import REFUSED, attempt
from relay import failpoints
from relay.errors import Refused, Unavailable
from relay.records_pb2 import Block

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from loader.ledger import Ledger
    from relay.settings import Settings

_LONGEST_PAUSE = 10.0
_IDLE_SECONDS = 5.0
_STARTS = 10
_SLOW = "Python worker failed to connect back."
"""Spark's words when the data source's process has not started within ten seconds, which are
fixed; a machine busy with other things passes."""
_STREAMING = "org.apache.spark.sql.execution.streaming"
_AT_WORK = (f"{_STREAMING}.runtime.ProcessingTimeExecutor",)
"""Warns of every batch longer than the trigger's interval, which is a least pause here."""
_AT_THE_END = ("org.apache.spark.scheduler.DAGScheduler", "org.apache.hadoop.util.Shell")
"""Warn that no job was to be cancelled, and of the interrupt that ends the query."""
T = TypeVar("T")


class Stopped(Exception):
    """The loader was told to end; the batch is left to the next start."""


def session(settings: Settings, master: str | None) -> SparkSession:
    """Spark, quiet and without its web server."""
    os.environ["PYSPARK_PYTHON"] = sys.executable  # else workers import nothing
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ[failpoints.DRIVER] = str(os.getpid())
    where = master or settings.loader.master
    options = {
        "spark.app.name": f"block-relay loader of {settings.app}",
        "spark.master": where,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Tasks may run twice (each makes its own claim), but not for nothing. How often a
        # failed task is tried is left at Spark's default for the same reason.
        "spark.speculation": "false",
        "spark.python.worker.reuse": "true",  # keeps consumer and HTTP client
        "spark.python.daemon.module": "loader.task",  # whose workers end without a word
        "spark.sql.shuffle.partitions": "1",  # nothing is shuffled
        "spark.sql.adaptive.enabled": "false",  # else every start warns that streams cannot
        "spark.sql.streaming.numRecentProgressUpdates": "1",
    }
    if where.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # opens no port to the network
        # No row passes through this JVM: compiling further costs more than all its work.
        options["spark.driver.defaultJavaOptions"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    conf = SparkConf().setAll(list(options.items()))
    # A signal to the whole group is for this process to act upon; the JVM ends with it.
    gateway = launch_gateway(conf, {"start_new_session": True})  # type: ignore[no-untyped-call]
    SparkContext(conf=conf, gateway=gateway)
    spark = SparkSession.builder.getOrCreate()
    _hush(spark, *_AT_WORK)
    return spark


def _hush(spark: SparkSession, *loggers: str, level: str = "ERROR") -> None:
    """From now on these log nothing below `level`."""
    jvm: Any = spark._jvm  # noqa: SLF001 - the only way to one logger's level
    log4j = jvm.org.apache.logging.log4j
    for logger in loggers:
        log4j.core.config.Configurator.setLevel(logger, log4j.Level.valueOf(level))


class Job:
    """One run of the loader."""

    def __init__(self, settings: Settings, ledger: Ledger, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._ledger = ledger
        self._say = say
        self._stopping = threading.Event()
        self._busy = threading.Lock()
        self._total: Counter[str] = Counter()
        self._batch = 0
        self._journal = ""
        self.error: Exception | None = None

    def stop(self) -> None:
        """Asks the run to end; may be called from a signal handler."""
        self._stopping.set()

    def run(
        self, spark: SparkSession, start: journal_source.Start, checkpoint: str, *, once: bool
    ) -> None:
        """Loads until stopped; with `once`, until what is sealed now is settled.

        Raises:
            RelayError: as the batch or the journal source raised it, or Spark's exception.
        """
        self._journal = start.journal
        spark.dataSource.register(journal_source.source(start))
        seconds = f"{self._settings.loader.trigger_seconds} seconds"
        trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": seconds}
        blocks = spark.readStream.format("journal").load().writeStream.foreachBatch(self._on_batch)
        stream = blocks.option("checkpointLocation", checkpoint).trigger(**trigger)
        for left in reversed(range(_STARTS)):
            try:
                self._await(spark, stream.start())
            except StreamingQueryException as error:
                if _SLOW not in str(error) or not left:
                    raise
                self._say(f"{_SLOW} Starting again.")
            else:
                return

    def _await(self, spark: SparkSession, query: StreamingQuery) -> None:
        try:
            while not self._stopping.is_set():
                if query.awaitTermination(0.2):  # type: ignore[arg-type] # seconds, as a float
                    return
            self._end(spark, query)
        except Exception:
            if self._stopping.is_set():  # all that counts is in the ledger
                if self.error is not None:
                    self._say(f"while stopping: {self.error}")
                return
            if self.error is not None:
                raise self.error from None
            raise

    def _end(self, spark: SparkSession, query: StreamingQuery) -> None:
        """Between two batches, where Spark interrupts nothing; a batch ends at its next pause."""
        patience = time.monotonic() + _IDLE_SECONDS
        while query.isActive and query.status["isTriggerActive"]:
            if time.monotonic() > patience and not self._busy.locked():
                break  # the journal's broker is away
            time.sleep(0.005)
        _hush(spark, *_AT_THE_END)
        with self._busy:
            query.stop()

    def _on_batch(self, frame: DataFrame, _number: int) -> None:
        with self._busy:
            try:
                self._settle(frame)
            except Stopped:
                _hush(frame.sparkSession, _STREAMING, level="OFF")  # would report just this
                raise
            except Exception as error:
                self.error = error
                raise

    def _settle(self, frame: DataFrame) -> None:
        rows = frame.collect()
        begun = time.monotonic()
        blocks = [Block.FromString(bytes(row.block)) for row in rows if row.block is not None]
        open_ = {block.id: block for block in self._unsettled(blocks)}
        count: Counter[str] = Counter(known=len(blocks) - len(open_))
        pause, since = 0.2, begun
        while open_:
            if self._stopping.is_set():
                raise Stopped
            reasons: set[str] = set()
            for block, outcome, n, reason in attempt(
                frame.sparkSession, self._settings, open_.values()
            ):
                if outcome == REFUSED:
                    raise Refused(*reason.split("\n", 1))
                if outcome == "retry":
                    reasons.add(reason)
                    continue
                del open_[block]
                count[outcome] += 1
                count["rows"] += n if outcome == LOADED else 0
                if outcome == PARKED:
                    self._say(f"parked {block}: {reason}")
                pause, since = 0.2, time.monotonic()
            if open_:
                self._wait(len(open_), reasons, pause, time.monotonic() - since)
                pause = min(pause * 2, _LONGEST_PAUSE)
        positions = {row.partition: row.offset + 1 for row in rows}
        self._retried(lambda: self._ledger.save_positions(self._journal, positions))
        self._report(count, time.monotonic() - begun)

    def _unsettled(self, blocks: Sequence[Block]) -> list[Block]:
        """Those that the ledger does not call loaded or parked: a lost checkpoint is cheap."""
        known = self._retried(lambda: self._ledger.entries(blocks))
        return [block for block in blocks if settled(known.get(block.id, ())) is None]

    def _retried(self, call: Callable[[], T]) -> T:
        """Calls until ClickHouse answers."""
        pause, since = 0.2, time.monotonic()
        while True:
            try:
                return call()
            except Unavailable as error:
                self._wait(0, {error.message}, pause, time.monotonic() - since)
                pause = min(pause * 2, _LONGEST_PAUSE)

    def _wait(self, blocks: int, reasons: set[str], pause: float, waited: float) -> None:
        """Says what is waited for, and waits; random, so that two loaders do not keep step."""
        limit = self._settings.loader.wait_for_servers_seconds
        why = "; ".join(sorted(reasons)[:3])
        if limit and waited > limit:
            raise Unavailable(
                f"waited {limit:g} s: {why}",
                "Start what is away, or raise loader.wait_for_servers_seconds.",
            )
        what = f"{blocks} blocks wait" if blocks else "waiting"
        self._say(f"{what}, next try in about {pause:.1f} s: {why}")
        if self._stopping.wait(pause * random.uniform(0.5, 1.5)):  # noqa: S311 - no secret
            raise Stopped

    def _report(self, count: Counter[str], seconds: float) -> None:
        self._batch += 1
        self._total.update(count)
        self._say(
            f"batch {self._batch}: {count[LOADED]} blocks, {count['rows']:,} rows, "
            f"{count['rows'] / max(seconds, 1e-3):,.0f} rows/s"
            + (f", {count['known']} known already" if count["known"] else "")
            + f" | all: {self._total[LOADED]} blocks, {self._total['rows']:,} rows, "
            f"{self._total[PARKED]} parked"
        )
