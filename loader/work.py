"""Carries out loader.plan's effects for a few blocks; runs in Spark's worker processes.

Receives blocks, gives one outcome per block. A task that Spark runs twice is two loaders
at once, which the plan is made for: claims are written here, not by the driver.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loader import clickhouse, plan
from loader.fetch import Damaged, Fetcher
from loader.insert import insert
from loader.ledger import Ledger, Row
from loader.tables import Tables, Target, arrived
from relay.errors import Unavailable
from relay.failpoints import reached

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from relay.records_pb2 import Block
    from relay.settings import Settings

TOGETHER = 4
"""Blocks claimed by one statement. More would save round trips, and leave more blocks to be
parked when a loader dies whose tables have neither block-id column nor window."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a block: "loaded", "parked" or "retry"."""

    block: str
    outcome: str
    rows: int
    reason: str


@dataclass(slots=True)
class _Attempt:
    block: Block
    run: plan.Run
    effect: plan.Effect
    target: Target | None
    inserted: bool = False

    def answer(self, answer: plan.Answer) -> None:
        self.run, self.effect = plan.step(self.run, answer)


class Worker:
    """Client, consumer and questions of one process, kept over tasks."""

    def __init__(self, settings: Settings) -> None:
        timeout = settings.loader.insert_timeout_seconds
        self._stamp = settings.loader.block_column
        self._client = clickhouse.connect(settings.clickhouse, timeout)
        self._ledger = Ledger(self._client, settings.loader.database, settings.app)
        self._tables = Tables(self._client, self._stamp)
        self._fetcher = Fetcher(settings.kafka)

    def close(self) -> None:
        """Ends consumer and client."""
        self._fetcher.close()
        self._client.close()

    def load(self, blocks: Sequence[Block], human: plan.Human = "nothing") -> list[Outcome]:
        """One attempt at each block.

        Raises:
            Refused: ClickHouse denies what no block can be loaded without.
        """
        near = sorted(blocks, key=lambda block: (block.topic, block.partition, block.first_offset))
        outcomes: list[Outcome] = []
        for first in range(0, len(near), TOGETHER):
            outcomes += self._few(near[first : first + TOGETHER], human)
        return outcomes

    def _few(self, blocks: Sequence[Block], human: plan.Human) -> list[Outcome]:
        try:
            targets = self._tables.look({block.table for block in blocks})
        except Unavailable as error:
            return [Outcome(block.id, "retry", block.rows, error.message) for block in blocks]
        claim = uuid.uuid4().hex
        attempts = []
        for block in blocks:
            target = targets.get(block.table)
            stamped = target is not None and target.stamped(self._stamp)
            begun = plan.start(claim, block.rows, stamped=stamped, human=human)
            attempts.append(_Attempt(block, *begun, target))
        while open_ := [a for a in attempts if not isinstance(a.effect, plan.Done)]:
            self._advance(open_)
        return [_outcome(attempt) for attempt in attempts]

    def _advance(self, attempts: Sequence[_Attempt]) -> None:
        """The next effect of each: reads and claims together, all else one by one."""
        reading = [a for a in attempts if isinstance(a.effect, plan.Read)]
        claiming = [a for a in attempts if isinstance(a.effect, plan.Claim)]
        others = [a for a in attempts if not isinstance(a.effect, plan.Read | plan.Claim)]
        if reading:
            _guarded(reading, lambda: self._read(reading))
        if claiming:
            _guarded(claiming, lambda: self._claim(claiming))
        for attempt in others:
            while not isinstance(attempt.effect, plan.Read | plan.Done):
                _guarded([attempt], lambda a=attempt: self._one(a))  # type: ignore[misc]

    def _read(self, attempts: Sequence[_Attempt]) -> None:
        entries = self._ledger.entries([attempt.block for attempt in attempts])
        for attempt in attempts:
            attempt.answer(entries.get(attempt.block.id, ()))

    def _claim(self, attempts: Sequence[_Attempt]) -> None:
        rows, claimed = [], []
        for attempt in attempts:
            effect, target = attempt.effect, attempt.target
            assert isinstance(effect, plan.Claim)
            if target is None:
                attempt.answer(plan.Impossible(f"there is no table {attempt.block.table}"))
                continue
            run = attempt.run
            entry = plan.Entry(
                plan.PREPARED, effect.attempt, run.claim, target.counter, run.stamped
            )
            rows.append(Row(attempt.block, entry))
            claimed.append(attempt)
        reached("before_prepare")
        if rows:
            self._ledger.write(rows)
        reached("after_prepare")
        for attempt in claimed:
            attempt.answer(plan.Ok())

    def _one(self, attempt: _Attempt) -> None:
        block, run, effect = attempt.block, attempt.run, attempt.effect
        match effect:
            case plan.Ask():
                assert attempt.target is not None
                age = self._ledger.oldest_claim(block)
                attempt.answer(self._tables.facts(block, run, attempt.target, age))
            case plan.Insert(limit):
                attempt.answer(self._insert(attempt, limit))
            case plan.Mark(number):
                assert attempt.target is not None
                check = arrived(block, attempt.target, self._stamp) if attempt.inserted else "1"
                self._ledger.mark(block, run.claim, number, check, attempt.target.counter)
                reached("after_loaded")
                attempt.answer(plan.Ok())
            case plan.Park(number, reason):
                entry = plan.Entry(plan.PARKED, number, run.claim, reason=reason)
                self._ledger.write([Row(block, entry)])
                attempt.answer(plan.Ok())

    def _insert(self, attempt: _Attempt, limit: int | None) -> plan.Answer:
        block, target = attempt.block, attempt.target
        assert target is not None
        try:
            batch = self._fetcher.fetch(block)
        except Damaged as error:
            return plan.Impossible(str(error))
        answer = insert(
            self._client,
            self._ledger,
            block,
            batch,
            attempt.run,
            target,
            stamp=self._stamp,
            limit=limit,
        )
        attempt.inserted = isinstance(answer, plan.Ok)
        reached("after_insert")
        return answer


def _guarded(attempts: Sequence[_Attempt], work: Callable[[], None]) -> None:
    """Runs `work`; if a server is away, every attempt not yet answered fails for now."""
    before = [attempt.effect for attempt in attempts]
    try:
        work()
    except Unavailable as error:
        for attempt, effect in zip(attempts, before, strict=True):
            if attempt.effect is effect:
                attempt.answer(plan.Failed(error.message))


def _outcome(attempt: _Attempt) -> Outcome:
    done = attempt.effect
    assert isinstance(done, plan.Done)
    return Outcome(attempt.block.id, done.outcome, attempt.block.rows, done.reason)
