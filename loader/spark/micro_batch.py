"""Micro-batches of sealed blocks: each is settled before the next, and no block holds it up.

Receives blocks, hands them to loader.blocks.worker in Spark's worker processes, tries again what a
server's absence left open, has the blocks stand aside that fail alone, and writes the position
behind the batch into the ledger. Decides about no block itself.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from loader.blocks.attempt import REFUSED
from loader.core.plan import ASIDE, LOADED, PARKED
from loader.core.set_aside_plan import Aside, stands_aside
from loader.spark.known_blocks import BatchBlocks, KnownBlocks
from loader.spark.workers import attempt
from relay.errors import Refused, Unavailable
from relay.program.waiting import pauses

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pyspark.sql import SparkSession

    from loader.blocks.attempt import Outcome
    from loader.clickhouse.ledger import Ledger
    from loader.console import Say
    from loader.journal.source import Start
    from loader.metrics.observer import LoaderObserver
    from loader.spark.set_aside import SetAside
    from relay.config.settings import Settings
    from relay.records_pb2 import Block

_LONGEST_PAUSE = 10.0
_FIRST_PAUSE = 0.2
_NAMED = 3
"""Names in a line; the rest is counted."""
T = TypeVar("T")


class Stopped(Exception):
    """The loader was asked to end; the next start takes the batch up."""


@dataclass(slots=True)
class _Failing:
    """A block's failures in a row.

    Attributes:
        since: when the first round that it failed in began.
        known: when that round ended, which may be long after the block failed.
        about: what the last failure was about that says it; what the server then still does for the
            block is the same trouble.
    """

    since: float
    known: float
    tries: int = 0
    about: str = ""


class Settling:
    """Settle all micro-batches of one run.

    `asides` takes the blocks that are to hold up no other; `stopping` is set when the loader is to
    end; `beside` is how many jobs share the Spark session, this one included.
    """

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        say: Say,
        observer: LoaderObserver,
        asides: SetAside,
        stopping: threading.Event,
        beside: int = 1,
    ) -> None:
        self._known: KnownBlocks
        self._settings, self._beside = settings, beside
        self._ledger, self._say, self._observer = ledger, say, observer
        self._asides, self._stopping = asides, stopping
        self._total: Counter[str] = Counter()
        self._count: Counter[str] = Counter()
        self._failing: dict[str, _Failing] = {}
        self._loaded_at: dict[str, float] = {}
        self._looked_at: set[str] = set()
        self._batch = 0
        self._round = 0.0  # when it began

    def begin(self, start: Start) -> None:
        """Take the positions at which the run begins."""
        self._known = KnownBlocks(self._ledger, start, self._settings.loader.block_column)

    def end(self) -> None:
        """Check that the ledger still has the positions that were saved last.

        Raises:
            Unavailable: somebody set the ledger back meanwhile.
        """
        self._retried(self._known.look_again)
        self._known.check()

    def settle(self, spark: SparkSession, rows: Sequence[Any]) -> None:
        """Settle the blocks of the journal's rows, then write the position behind them.

        Raises:
            Stopped: the loader is to end.
            Unavailable: the servers were away for longer than the settings allow, or somebody set
                the ledger back.
            Refused: ClickHouse denies what no block can be loaded without.
        """
        start = time.monotonic()
        seen = self._look(rows)
        open_ = dict(seen.left)
        self._count = Counter(known=seen.blocks - len(open_))
        self._observer.began(self._count["known"], list(open_.values()))
        tables = {block.table for block in open_.values()}
        self._shut_out(open_)
        self._attempts(spark, open_, seen, rows)
        self._say_what_is_hidden(tables)
        positions = {row.partition: row.offset + 1 for row in rows}
        self._retried(lambda: self._known.settled(positions))
        self._observer.settled(time.monotonic() - start)
        self._report(time.monotonic() - start)

    def _look(self, rows: Sequence[Any]) -> BatchBlocks:
        seen = self._retried(lambda: self._known.look(rows))
        self._known.check()
        return seen

    def _say_what_is_hidden(self, tables: Collection[str]) -> None:
        """Name each table, once, whose rows this user does not see all; an empty one says nothing.

        Their rows come once all the same, but after an INSERT without an answer it may not be
        possible to find out what became of it.
        """
        for table in sorted(set(tables) - self._looked_at):
            seen = self._ledger.shown_of(table)
            if seen is not None:
                self._looked_at.add(table)
            if seen:
                text = (
                    f"this user sees only those rows of {table} where {seen} (a row policy or "
                    "additional_table_filters): where an INSERT gets no answer, its block may have "
                    "to wait for a person. Exempt the user, or see relay doctor --try"
                )
                self._say(text, level=logging.WARNING, table=table, seen=seen)

    def _attempts(
        self,
        spark: SparkSession,
        open_: dict[str, Block],
        seen: BatchBlocks,
        rows: Sequence[Any],
    ) -> None:
        """Attempt the blocks in rounds until none is open; `seen`: what the ledger knew before."""
        new: Collection[str] = seen.new
        pause, since = pauses(_FIRST_PAUSE, _LONGEST_PAUSE), time.monotonic()
        self._failing = {}
        while open_:
            if self._stopping.is_set():
                raise Stopped
            self._round, before = time.monotonic(), len(open_)
            outcomes = attempt(spark, self._settings, open_.values(), new, self._beside, seen.until)
            new = ()
            self._observer.attempted(outcomes, open_, time.monotonic() - self._round)
            failed = {one.block: one for one in outcomes if not self._is_done(one, open_)}
            self._stand_aside(failed, open_)
            if len(open_) < before:
                pause, since = pauses(_FIRST_PAUSE, _LONGEST_PAUSE), time.monotonic()
            if open_:
                reasons = {failed[block].reason for block in open_}
                self._wait(open_.values(), reasons, next(pause), time.monotonic() - since)
                seen = self._look(rows)
                for block in open_.keys() - seen.left.keys():  # somebody else has settled it
                    del open_[block]
                    self._count["known"] += 1

    def _is_done(self, result: Outcome, open_: dict[str, Block]) -> bool:
        """Record one block's outcome; return whether it settles the block."""
        if result.outcome == REFUSED:
            raise Refused.printed(result.reason)
        if result.outcome == "retry":
            first = _Failing(self._round, time.monotonic())
            failing = self._failing.setdefault(result.block, first)
            failing.tries += 1
            failing.about = result.about or failing.about
            return False
        table = open_.pop(result.block).table
        self._count[result.outcome] += 1
        if result.outcome == LOADED:
            self._count["rows"] += result.rows
            self._loaded_at[table] = time.monotonic()
            self._asides.loaded(table)
        elif result.outcome == PARKED:
            named = {"block": result.block, "table": table, "why": result.reason}
            self._say(f"parked {result.block}: {result.reason}", level=logging.WARNING, **named)
        return True

    def _shut_out(self, open_: dict[str, Block]) -> None:
        """Set aside, without an attempt, the blocks of tables that accept nothing now."""
        reasons = {table: self._asides.shut(table) for table in {b.table for b in open_.values()}}
        self._put(
            [
                Aside(block, f"not tried, because an earlier block of its table met: {reason}")
                for block in open_.values()
                if (reason := reasons[block.table])
            ],
            open_,
        )

    def _stand_aside(self, failed: Mapping[str, Outcome], open_: dict[str, Block]) -> None:
        """Set aside the failed blocks that would hold up the others."""
        now = time.monotonic()
        some = []
        for result in failed.values():
            block, failing = open_[result.block], self._failing[result.block]
            others = any(
                at >= failing.since for t, at in self._loaded_at.items() if t != block.table
            )
            seconds = now - failing.known
            if stands_aside(result.about, failing.tries, seconds, others_loaded=others):
                some.append(Aside(block, result.reason, failing.about))
        self._put(some, open_)

    def _put(self, some: Sequence[Aside], open_: dict[str, Block]) -> None:
        if not some:
            return
        try:
            others = self._asides.put(some)
        except Unavailable:
            self._failing = {}  # the server is unavailable, and the blocks wait for it
            return
        for aside in some:
            block = open_.pop(aside.block.id)
            self._count[others.get(block.id, ASIDE)] += 1
            if block.id not in others:
                self._observer.aside(block)
        for reason in sorted({aside.reason for aside in some}):
            blocks = [aside.block for aside in some if aside.reason == reason]
            ids = [block.id for block in blocks]
            text = f"set aside {listed(ids)}, to be tried again: {reason}"
            about = {"blocks": len(ids), "table": blocks[0].table, "first": ids[:_NAMED]}
            self._say(text, level=logging.WARNING, **about, why=reason)

    def _retried(self, call: Callable[[], T]) -> T:
        """Call until ClickHouse answers."""
        pause, since = pauses(_FIRST_PAUSE, _LONGEST_PAUSE), time.monotonic()
        while True:
            start = time.monotonic()
            try:
                answer = call()
            except Unavailable as error:
                self._wait((), {error.message}, next(pause), time.monotonic() - since)
            else:
                self._observer.asked(time.monotonic() - start)
                return answer

    def _wait(
        self, blocks: Collection[Block], reasons: set[str], pause: float, waited: float
    ) -> None:
        """Say what the loader waits for, and wait a random time, so that two do not keep step."""
        limit = self._settings.loader.wait_for_servers_seconds
        why = "; ".join(sorted(reasons)[:3])
        if limit and waited > limit:
            raise Unavailable(
                f"a server did not answer for {limit:g} s: {why}",
                "Start the server, or raise loader.wait_for_servers_seconds.",
            )
        self._observer.waiting(why)
        first = sorted(block.id for block in blocks)[:_NAMED]
        text = f"{named(blocks) or 'waiting'}, next try in about {pause:.1f} s: {why}"
        self._say(text, level=logging.WARNING, blocks=len(blocks), first=first, why=why)
        if self._stopping.wait(pause * random.uniform(0.5, 1.5)):  # noqa: S311 - no secret
            raise Stopped

    def _report(self, seconds: float) -> None:
        self._batch += 1
        count = self._count
        self._total.update(count)
        self._asides.parked += count[PARKED]
        self._say(
            f"batch {self._batch}: {blocks(count[LOADED])}, {count['rows']:,} rows, "
            f"{count['rows'] / max(seconds, 1e-3):,.0f} rows/s"
            + (f", {count['known']} already settled" if count["known"] else "")
            + (f", {count[ASIDE]} set aside" if count[ASIDE] else "")
            + (f", {count[PARKED]} parked" if count[PARKED] else "")
            + f" | all: {blocks(self._total[LOADED])}, {self._total['rows']:,} rows"
            + (f" | {self._asides.parked} parked now" if self._asides.parked else ""),
            batch=self._batch,
            seconds=round(seconds, 3),
            **count,
        )


def blocks(number: int) -> str:
    """Return the number of blocks in words."""
    return "1 block" if number == 1 else f"{number} blocks"


def named(blocks: Collection[Block]) -> str:
    """Describe waiting blocks: how many, of which tables, the first ids; empty for none."""
    tables = sorted({block.table for block in blocks})
    ids = sorted(block.id for block in blocks)
    wait = "1 block waits" if len(ids) == 1 else f"{len(ids)} blocks wait"
    return f"{wait}, of {listed(tables)} ({listed(ids)})" if ids else ""


def listed(names: Sequence[str]) -> str:
    """List the first names, and say how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
