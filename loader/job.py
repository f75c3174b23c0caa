"""The Spark job: micro-batches of sealed blocks, each settled before the next.

Receives rows of loader.journal_source, hands the blocks to loader.work in Spark's
worker processes, tries again what a server's absence left open, and writes the
position behind the batch into the ledger. Decides about no block itself.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.errors import StreamingQueryException

from loader import journal_source
from loader.known import Known, Seen
from loader.metrics.listener import Listener
from loader.metrics.observer import NOTHING, Observer
from loader.plan import LOADED, PARKED
from loader.session import AT_THE_END, STREAMING, hush, unheard
from loader.starting import AT_ONCE, PROGRESS, AtOnce
from loader.task import REFUSED, attempt
from relay.errors import Refused, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from loader.clioptions import Say
    from loader.ledger import Ledger
    from relay.settings import Settings

_LONGEST_PAUSE = 10.0
_IDLE_SECONDS = 5.0
_STARTS = 10
_SLOW = "Python worker failed to connect back."
"""Spark's words when the data source's process has not started within ten seconds, which are
fixed; a machine busy with other things passes."""
T = TypeVar("T")


class Stopped(Exception):
    """The loader was told to end; the batch is left to the next start."""


class Job:
    """One run of the loader.

    Args:
        settings: of the app.
        ledger: of the app.
        say: a line for people; the keyword arguments are the same for machines.
        observer: hears of every micro-batch.
        beside: how many jobs share the Spark session, this one included.
        starts: begins the query, where several must not begin at once.
    """

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        say: Say,
        observer: Observer = NOTHING,
        beside: int = 1,
        starts: AtOnce = AT_ONCE,
    ) -> None:
        self._settings, self._beside, self._starts = settings, beside, starts
        self._ledger = ledger
        self._say = say
        self._observer = observer
        self._stopping = threading.Event()
        self._busy = threading.Lock()
        self._total: Counter[str] = Counter()
        self._batch = 0
        self._known: Known
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
        self._known = Known(self._ledger, start, self._settings.loader.block_column)
        journal = journal_source.source(start)
        spark.dataSource.register(journal)
        if self._observer is not NOTHING:
            spark.streams.addListener(Listener(self._observer, self._settings.app))
        seconds = f"{self._settings.loader.trigger_seconds} seconds"
        trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": seconds}
        rows = spark.readStream.format(journal.name()).load()
        blocks = rows.writeStream.foreachBatch(self._on_batch).queryName(self._settings.app)
        stream = blocks.option("checkpointLocation", checkpoint).trigger(**trigger)
        if not once:  # Spark has it for this trigger alone
            stream = stream.options(**PROGRESS)
        for left in reversed(range(_STARTS)):
            try:
                self._await(spark, self._starts.start(stream.start, self._stopping))
                if once:  # the positions saved last
                    self._retried(self._known.look_again)
                    self._known.check()
            except StreamingQueryException as error:
                if _SLOW not in str(error) or not left:
                    raise
                self._say(f"{_SLOW} Starting again.")
                self._observer.restarted()
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
        hush(spark, *AT_THE_END)
        with self._busy, unheard(spark):
            query.stop()

    def _on_batch(self, frame: DataFrame, _number: int) -> None:
        with self._busy:
            try:
                self._settle(frame)
            except Stopped:
                hush(frame.sparkSession, STREAMING, level="OFF")  # would report just this
                raise
            except Exception as error:
                self.error = error
                raise

    def _settle(self, frame: DataFrame) -> None:
        rows = frame.collect()
        begun = time.monotonic()
        seen = self._look(rows)
        open_, new = seen.left, seen.new
        count: Counter[str] = Counter(known=seen.blocks - len(open_))
        self._observer.began(count["known"], list(open_.values()))
        pause, since = 0.2, begun
        while open_:
            if self._stopping.is_set():
                raise Stopped
            reasons: set[str] = set()
            round_begun = time.monotonic()
            outcomes = attempt(
                frame.sparkSession, self._settings, open_.values(), new, self._beside, seen.doubts
            )
            new = frozenset()
            self._observer.attempted(outcomes, open_, time.monotonic() - round_begun)
            for one in outcomes:
                if one.outcome == REFUSED:
                    raise Refused(*one.reason.split("\n", 1))
                if one.outcome == "retry":
                    reasons.add(one.reason)
                    continue
                table = open_.pop(one.block).table
                count[one.outcome] += 1
                count["rows"] += one.rows if one.outcome == LOADED else 0
                if one.outcome == PARKED:
                    text = f"parked {one.block}: {one.reason}"
                    self._say(text, block=one.block, table=table, why=one.reason)
                pause, since = 0.2, time.monotonic()
            if open_:
                self._wait(len(open_), reasons, pause, time.monotonic() - since)
                pause = min(pause * 2, _LONGEST_PAUSE)
                seen = self._look(rows)
                count["known"] += len(open_.keys() - seen.left.keys())
                open_ = {block: one for block, one in open_.items() if block in seen.left}
        positions = {row.partition: row.offset + 1 for row in rows}
        self._retried(lambda: self._known.settled(positions))
        self._observer.settled(time.monotonic() - begun)
        self._report(count, time.monotonic() - begun)

    def _look(self, rows: list[Any]) -> Seen:
        seen = self._retried(lambda: self._known.look(rows))
        self._known.check()
        return seen

    def _retried(self, call: Callable[[], T]) -> T:
        """Calls until ClickHouse answers."""
        pause, since = 0.2, time.monotonic()
        while True:
            begun = time.monotonic()
            try:
                answer = call()
            except Unavailable as error:
                self._wait(0, {error.message}, pause, time.monotonic() - since)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                self._observer.asked(time.monotonic() - begun)
                return answer

    def _wait(self, blocks: int, reasons: set[str], pause: float, waited: float) -> None:
        """Says what is waited for, and waits; random, so that two loaders do not keep step."""
        limit = self._settings.loader.wait_for_servers_seconds
        why = "; ".join(sorted(reasons)[:3])
        if limit and waited > limit:
            raise Unavailable(
                f"waited {limit:g} s: {why}",
                "Start what is away, or raise loader.wait_for_servers_seconds.",
            )
        self._observer.waiting(why)
        what = f"{blocks} blocks wait" if blocks else "waiting"
        self._say(f"{what}, next try in about {pause:.1f} s: {why}", blocks=blocks, why=why)
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
            f"{self._total[PARKED]} parked",
            batch=self._batch,
            seconds=round(seconds, 3),
            **count,
        )
