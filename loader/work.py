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
    from collections.abc import Callable, Iterable, Sequence

    from relay.records_pb2 import Block
    from relay.settings import Settings

TOGETHER = 8
"""Blocks claimed by one statement and marked by one: four round trips for each block cost
half as much as its insert."""
AT_RISK_TOGETHER = 4
"""The same, of tables with neither block-id column nor window: so many blocks at most are
parked when a loader dies in the middle."""
_ROOMY = 8 * TOGETHER
"""Parts that a table's window must have room for, so that its blocks are not at risk."""


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
    ahead: Block | None  # probably inserted next
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
        self._decidable: set[str] = set()  # tables, as last seen: no block of them is at risk

    def close(self) -> None:
        """Ends consumer and client."""
        self._fetcher.close()
        self._client.close()

    def load(self, blocks: Sequence[Block], human: plan.Human = "nothing") -> list[Outcome]:
        """One attempt at each block.

        Raises:
            Refused: ClickHouse denies what no block can be loaded without.
        """
        left = near(blocks)
        outcomes: list[Outcome] = []
        try:
            while left:
                safe = all(block.table in self._decidable for block in left[:TOGETHER])
                size = TOGETHER if safe else AT_RISK_TOGETHER
                few, left = left[:size], left[size:]
                outcomes += self._few(few, human, left[0] if left else None)
        finally:
            self._fetcher.rest()
        return outcomes

    def _few(
        self, blocks: Sequence[Block], human: plan.Human, after: Block | None
    ) -> list[Outcome]:
        try:
            targets = self._look(blocks)
        except Unavailable as error:
            return [Outcome(block.id, "retry", block.rows, error.message) for block in blocks]
        claim = uuid.uuid4().hex
        attempts = []
        for block, ahead in zip(blocks, [*blocks[1:], after], strict=True):
            target = targets.get(block.table)
            stamped = target is not None and target.stamped(self._stamp)
            begun = plan.start(claim, block.rows, stamped=stamped, human=human)
            attempts.append(_Attempt(block, *begun, target, ahead))
        while open_ := [a for a in attempts if not isinstance(a.effect, plan.Done)]:
            self._advance(open_)
        return [_outcome(attempt) for attempt in attempts]

    def _look(self, blocks: Sequence[Block]) -> dict[str, Target]:
        tables = {block.table for block in blocks}
        targets = self._tables.look(tables)
        self._decidable -= tables
        self._decidable |= {
            table
            for table, target in targets.items()
            if target.stamped(self._stamp) or target.window.margin(0) >= _ROOMY
        }
        return targets

    def _advance(self, attempts: Sequence[_Attempt]) -> None:
        """The next effect of each: reads, claims and marks together, all else one by one."""
        reading = [a for a in attempts if isinstance(a.effect, plan.Read)]
        claiming = [a for a in attempts if isinstance(a.effect, plan.Claim)]
        marking = [a for a in attempts if isinstance(a.effect, plan.Mark)]
        if reading:
            _guarded(reading, lambda: self._read(reading))
        if claiming:
            _guarded(claiming, lambda: self._claim(claiming))
        for alike in _alike(marking):
            _guarded(alike, lambda some=alike: self._mark(some))  # type: ignore[misc]
        for attempt in attempts:
            while isinstance(attempt.effect, plan.Ask | plan.Insert | plan.Park):
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

    def _mark(self, attempts: Sequence[_Attempt]) -> None:
        blocks = [attempt.block for attempt in attempts]
        target = attempts[0].target
        assert target is not None
        check = arrived(blocks[0].table, target, self._stamp) if attempts[0].inserted else "1"
        self._ledger.mark(blocks, attempts[0].run.claim, check, target.counter)
        reached("after_loaded")
        for attempt in attempts:
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
            case plan.Park(number, reason):
                entry = plan.Entry(plan.PARKED, number, run.claim, reason=reason)
                self._ledger.write([Row(block, entry)])
                attempt.answer(plan.Ok())

    def _insert(self, attempt: _Attempt, limit: int | None) -> plan.Answer:
        block, target = attempt.block, attempt.target
        assert target is not None
        try:
            batch = self._fetcher.fetch(block, attempt.ahead)
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


def near(blocks: Iterable[Block]) -> list[Block]:
    """The blocks in the order in which they lie in Kafka: neighbours are read in one go."""
    return sorted(blocks, key=lambda block: (block.topic, block.partition, block.first_offset))


def _guarded(attempts: Sequence[_Attempt], work: Callable[[], None]) -> None:
    """Runs `work`; if a server is away, every attempt not yet answered fails for now."""
    before = [attempt.effect for attempt in attempts]
    try:
        work()
    except Unavailable as error:
        for attempt, effect in zip(attempts, before, strict=True):
            if attempt.effect is effect:
                attempt.answer(plan.Failed(error.message))


def _alike(attempts: Sequence[_Attempt]) -> list[list[_Attempt]]:
    """Those of one table that were all inserted, or all found in it."""
    found: dict[tuple[str, bool], list[_Attempt]] = {}
    for attempt in attempts:
        found.setdefault((attempt.block.table, attempt.inserted), []).append(attempt)
    return list(found.values())


def _outcome(attempt: _Attempt) -> Outcome:
    done = attempt.effect
    assert isinstance(done, plan.Done)
    return Outcome(attempt.block.id, done.outcome, attempt.block.rows, done.reason)
