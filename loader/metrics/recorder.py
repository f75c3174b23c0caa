"""Counts what a loader does: the observer behind `loader run --http`.

Receives outcomes with the workers' figures, and Spark's progress; gives counters and
histograms, and the facts that loader.metrics.health judges. Called by the query's thread and by
that of Spark's listener; each attribute is replaced whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from loader.blocks.attempt import REFUSED, Outcome
from loader.core.plan import ASIDE, DEAD, DISCARDED, LOADED, PARKED
from loader.core.retry_cause import RetryCause
from loader.metrics.definitions import RECORDED
from loader.metrics.observer import LoaderObserver
from relay.clickhouse.errors import number
from relay.program.metric import Bounded, made
from relay.records_pb2 import Block


class LoaderRecorder(LoaderObserver):
    """Count what one loader does.

    Attributes:
        heard_at: the last sign of life.
        batch_since: when the open micro-batch began; None: none is open.
        open_blocks: of it, not settled yet.
        away: which server is waited for; empty: none.
        answered_at: when one that was waited for answered again; before the first, the beginning.
        begins: whether the servers have answered all that is asked before the query begins.
        started: whether the query runs.
        executors: counts Spark's; None: tasks run in the driver.
    """

    def __init__(
        self, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._m = made(RECORDED, registry)
        self._table = Bounded()
        self.clock = clock
        self.heard_at = self.answered_at = clock()
        self.batch_since: float | None = None
        self.open_blocks = 0
        self.away = ""
        self.begins = self.started = False
        self.executors: Callable[[], int] | None = None
        self._rows = 0

    def found(self) -> None:
        """Note that the query begins."""
        self._note_answer()
        self.begins = True

    def engine(self, executors: Callable[[], int] | None) -> None:
        """Take Spark's counter of executors."""
        self.executors = executors

    def began(self, known: int, blocks: Sequence[Block]) -> None:
        """Count a micro-batch that begins."""
        self.heard_at = self.batch_since = self.clock()
        self.open_blocks, self._rows = len(blocks), 0
        self._m["loader_blocks_known_total"].inc(known)
        self._m["loader_batch_blocks"].observe(known + len(blocks))

    def attempted(
        self, outcomes: Sequence[Outcome], blocks: Mapping[str, Block], seconds: float
    ) -> None:
        """Count what the workers attempted."""
        self._note_answer()
        self._m["loader_round_seconds"].observe(seconds)
        for result in outcomes:
            self.open_blocks -= self._attempt(result, blocks[result.block])

    def aside(self, block: Block) -> None:
        """Count a block that was set aside."""
        self.open_blocks -= 1
        self._m["loader_blocks_aside_total"].labels(self._table(block.table)).inc()

    def tried_again(self, outcomes: Sequence[Outcome], blocks: Mapping[str, Block]) -> None:
        """Count what the driver's own worker tried again."""
        for result in outcomes:
            self._attempt(result, blocks[result.block])

    def _attempt(self, result: Outcome, block: Block) -> bool:
        """Count one attempt; return whether the block is settled."""
        m, figures = self._m, result.figures
        m["loader_attempts_total"].inc()
        m["loader_inserts_total"].inc(figures.inserts)
        m["loader_insert_failures_total"].inc(figures.failures)
        m["loader_inserts_repeated_total"].inc(figures.repeats)
        m["loader_blocks_found_total"].inc(figures.found)
        if figures.inserts:
            m["loader_insert_seconds"].observe(figures.insert_seconds)
        if figures.fetch_seconds:
            m["loader_fetch_seconds"].observe(figures.fetch_seconds)
        table = self._table(block.table)
        if result.outcome == LOADED:
            self._count_loaded(result, block, table)
        elif result.outcome == PARKED:
            m["loader_blocks_parked_total"].labels(table).inc()
        elif result.outcome == DISCARDED:
            m["loader_blocks_discarded_total"].labels(table).inc()
        elif result.outcome == DEAD:
            m["loader_blocks_dead_total"].labels(table).inc()
            m["loader_dead_letters_total"].labels(table).inc(len(block.left_out))
        elif result.outcome == REFUSED:
            m["loader_refusals_total"].inc()
        elif result.outcome != ASIDE:
            m["loader_retries_total"].labels(why(result.cause, result.reason)).inc()
            return False
        return True

    def _count_loaded(self, result: Outcome, block: Block, table: str) -> None:
        m = self._m
        m["loader_blocks_loaded_total"].labels(table).inc()
        m["loader_rows_loaded_total"].labels(table).inc(result.rows)
        m["loader_row_bytes_loaded_total"].labels(table).inc(block.row_bytes)
        self._rows += result.rows
        if queryable_ms := result.figures.queryable_ms:
            for name, since_ms in (
                ("loader_queryable_seconds", block.first_timestamp_ms),
                ("loader_sealed_to_queryable_seconds", block.sealed_at_ms),
            ):
                if since_ms > 0:  # else the record has no time
                    # Another machine's clock may be ahead.
                    m[name].labels(table).observe(max(0, queryable_ms - since_ms) / 1000)

    def asked(self, seconds: float) -> None:
        """Count an answer of the ledger."""
        self._m["loader_ledger_seconds"].observe(seconds)

    def waiting(self, why: str) -> None:
        """Count a try of any server."""
        self.heard_at, self.away = self.clock(), why
        self._m["loader_server_waits_total"].inc()

    def settled(self, seconds: float) -> None:
        """Count a micro-batch that ended."""
        self._note_answer()
        self.batch_since = None
        self._m["loader_batches_total"].inc()
        self._m["loader_batch_seconds"].observe(seconds)
        self._m["loader_batch_rows"].observe(self._rows)

    def _note_answer(self) -> None:
        self.heard_at = self.clock()
        if self.away:
            self.answered_at, self.away = self.heard_at, ""

    def restarted(self) -> None:
        """Count a start of the query."""
        self._m["loader_query_restarts_total"].inc()

    def query_event(self, event: str, progress: Any = None) -> None:
        """Note a sign of life of Spark's."""
        if self.batch_since is None:  # inside one, only its own steps are signs of life
            self.heard_at = self.clock()
        self.started = event != "terminated"
        if event == "idle":
            self._m["loader_spark_idle_total"].inc()
        if progress is None:
            return
        self._m["loader_spark_triggers_total"].inc()
        self._m["loader_spark_records_total"].inc(max(0, progress.numInputRows))
        self._m["loader_spark_batch_id"].set(progress.batchId)
        self._m["loader_spark_input_rate"].set(_rate(progress.inputRowsPerSecond))
        self._m["loader_spark_processed_rate"].set(_rate(progress.processedRowsPerSecond))
        for step, milliseconds in progress.durationMs.items():
            self._m["loader_spark_step_seconds"].labels(step).observe(milliseconds / 1000)


def _rate(value: float) -> float:
    """Return a rate that Spark reports; 0 where it is not a number."""
    return value if value == value else 0.0  # noqa: PLR0124 - NaN differs from itself


def why(cause: RetryCause, reason: str) -> str:
    """Return the label of a retry: its cause; of an error ClickHouse's code, or "server away"."""
    if cause is not RetryCause.ERROR:
        return cause.value
    code = number(reason)
    return "server away" if code is None else f"code {code}"
