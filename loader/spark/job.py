"""The Spark job: a query whose micro-batches are sealed blocks.

Receives rows of loader.journal.source, has loader.spark.micro_batch settle the blocks of each
micro-batch, and loader.spark.set_aside those that stood aside. Starts and ends the query, and
decides nothing.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from loader.journal import source
from loader.metrics.listener import QueryListener
from loader.metrics.observer import NOTHING, LoaderObserver
from loader.spark.micro_batch import Settling, Stopped
from loader.spark.query_start import run_again, start_in_turn
from loader.spark.session import (
    AT_THE_END,
    STREAMING,
    mute,
    muted_threads,
    registered,
    set_log_level,
    unmute,
)
from loader.spark.set_aside import SetAside
from relay.errors import RelayError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from loader.clickhouse.ledger import Ledger
    from loader.console import Say
    from relay.config.settings import Settings

_IDLE_SECONDS = 5.0
_PROGRESS = {
    "asyncProgressTrackingEnabled": "true",
    # Each micro-batch: a start without this, as with --once, takes no checkpoint with gaps.
    "asyncProgressTrackingCheckpointIntervalMs": "0",
    # Spark wants a sink that it knows to bear a batch twice: the ledger makes ours one.
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
}
"""The checkpoint is written beside the micro-batches: twice in each, it is a quarter of a small
one's time. What it lags behind is settled in the ledger, whose position is the one that counts."""


class Job:
    """One run of the loader.

    `beside`: how many jobs share the Spark session, this one included; `turn`: as of
    loader.spark.query_start.start_in_turn.
    """

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        say: Say,
        observer: LoaderObserver = NOTHING,
        beside: int = 1,
        turn: threading.Lock | None = None,
    ) -> None:
        self._settings, self._turn = settings, turn
        self._say, self._observer = say, observer
        self._stopping = threading.Event()
        self._busy = threading.Lock()
        self._asides = SetAside(settings, ledger, say, observer)
        self._settling = Settling(
            settings, ledger, say, observer, self._asides, self._stopping, beside
        )
        self.error: Exception | None = None

    def stop(self) -> None:
        """Ask the run to end; may be called from a signal handler."""
        self._stopping.set()
        self._asides.stop()

    def run(self, spark: SparkSession, start: source.Start, checkpoint: str, *, once: bool) -> None:
        """Load until stopped; with `once`, until what is sealed now is settled.

        Raises:
            RelayError: as the batch or the journal source raised it, or Spark's exception.
        """
        self._settling.begin(start)
        unmute(spark)
        set_log_level(spark, STREAMING, level="WARN")
        logging.getLogger("py4j.clientserver").addFilter(_unforeseen)
        journal = source.source(start)
        spark.dataSource.register(journal)
        seconds = f"{self._settings.loader.trigger_seconds} seconds"
        trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": seconds}
        rows = spark.readStream.format(journal.name()).load()
        blocks = rows.writeStream.foreachBatch(self._on_batch).queryName(self._settings.app)
        stream = blocks.option("checkpointLocation", checkpoint).trigger(**trigger)
        if not once:  # Spark has it for this trigger alone
            stream = stream.options(**_PROGRESS)
        with self._listening(spark), self._asides.running():
            run_again(
                lambda: self._await(spark, start_in_turn(stream.start, self._turn, self._stopping)),
                self._settings.loader.wait_for_servers_seconds,
                self._say,
                self._observer.restarted,
            )
        if once and not self._stopping.is_set():
            self._settling.end()
            self._asides.finish()

    @contextlib.contextmanager
    def _listening(self, spark: SparkSession) -> Iterator[None]:
        """Tell the observer meanwhile what Spark says; the session may outlive this job."""
        if self._observer is NOTHING:
            yield
            return
        self._observer.engine(registered(spark))
        listener = QueryListener(self._observer, self._settings.app)
        spark.streams.addListener(listener)
        try:
            yield
        finally:
            with contextlib.suppress(Py4JError, ConnectionError):  # its JVM has ended
                spark.streams.removeListener(listener)

    def _await(self, spark: SparkSession, query: StreamingQuery) -> None:
        try:
            while not self._stopping.is_set():
                if query.awaitTermination(0.2):  # type: ignore[arg-type] # seconds, as a float
                    return
                self._asides.check()
            self._end(spark, query)
        except Exception:
            if self._stopping.is_set():  # all that counts is in the ledger
                if self.error is not None:
                    self._say(f"while stopping: {self.error}", level=logging.WARNING)
                return
            cause = self.error
            # The error may be that of another thread. A query that went on would keep its name,
            # and none that is started again could begin.
            with contextlib.suppress(Py4JError, ConnectionError):  # its JVM has ended
                if query.isActive:
                    self._stopping.set()  # a batch that waits for a server need not wait
                    self._end(spark, query)
            if cause is not None:
                raise cause from None
            raise

    def _end(self, spark: SparkSession, query: StreamingQuery) -> None:
        """Stop the query between two batches, so that Spark interrupts none."""
        deadline = time.monotonic() + _IDLE_SECONDS
        while query.isActive and query.status["isTriggerActive"]:
            if time.monotonic() > deadline and not self._busy.locked():
                break  # the journal's broker is unavailable
            time.sleep(0.005)
        set_log_level(spark, *AT_THE_END)
        with self._busy, muted_threads(spark):
            query.stop()

    def _on_batch(self, frame: DataFrame, _number: int) -> None:
        with self._busy:
            try:
                self._settling.settle(frame.sparkSession, frame.collect())
            except (Stopped, RelayError) as error:
                # Whoever runs the job reports it with its next step; Spark would repeat it.
                set_log_level(frame.sparkSession, STREAMING, level="OFF")
                mute(frame.sparkSession)
                if isinstance(error, RelayError):
                    self.error = error
                raise
            except Exception as error:
                self.error = error
                raise


def _unforeseen(record: logging.LogRecord) -> bool:
    """Return whether nobody but py4j reports this exception of a batch."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, Stopped | RelayError)
