"""A small model of the loader: loader.core.plan decides, an in-memory ClickHouse remembers.

Receives the committed journal and block topics of tests.model.kafka; gives rows in tables.
tests/loader searches the plan itself (statements that overlap, windows, parking); here it
stands at the end of the relay's path, so that a block is loaded by two loaders that crash.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from loader.core import plan
from tests.model.copying import shallow
from tests.model.records import JOURNAL

if TYPE_CHECKING:
    from relay.core.records import JournalRecord, SealedBlock
    from tests.model.kafka import Kafka

Row = tuple[str, int, str, int]
"""(table, source partition, block id, source offset)."""


@dataclass(slots=True)
class ClickHouse:
    """Tables with a block-id column, the ledger, and a window of `window` tokens."""

    window: int = 2
    ledger_on: bool = True
    rows: tuple[Row, ...] = ()
    tokens: tuple[str, ...] = ()
    ledger: dict[str, tuple[plan.Entry, ...]] = field(default_factory=dict)
    parts: int = 0

    def clone(self) -> ClickHouse:
        new = shallow(self)
        new.ledger = self.ledger.copy()
        return new

    def key(self) -> tuple[Any, ...]:
        return (self.rows, self.tokens, tuple(sorted(self.ledger.items())), self.parts)

    def entries(self, block: str) -> tuple[plan.Entry, ...]:
        return self.ledger.get(block, ()) if self.ledger_on else ()

    def write(self, block: str, entry: plan.Entry) -> None:
        self.ledger[block] = (*self.ledger.get(block, ()), entry)

    def insert(self, block: str, rows: tuple[Row, ...]) -> None:
        """Without effect while the token is in the window."""
        if block not in self.tokens:
            self.rows += rows
            self.parts += 1
        self.tokens = (*(t for t in self.tokens if t != block), block)[-self.window :]


@dataclass(slots=True)
class Loader:
    """A loader process: one block at a time, in the order of the journal from its checkpoint."""

    name: str
    lives: int = 0
    attempts: int = 0
    positions: dict[int, int] = field(default_factory=dict)
    work: tuple[int, int, int] | None = None
    run: plan.Run | None = None
    effect: plan.Effect | None = None

    def clone(self) -> Loader:
        new = shallow(self)
        new.positions = self.positions.copy()
        return new

    def key(self) -> tuple[Any, ...]:
        places = tuple(sorted(self.positions.items()))
        return (self.name, self.lives, self.attempts, places, self.work, self.run, self.effect)

    def crash(self) -> None:
        """All is lost, the checkpoint too."""
        self.lives += 1
        self.positions, self.work, self.run, self.effect = {}, None, None, None

    def busy(self, kafka: Kafka) -> bool:
        return self.work is not None or self._next(kafka) is not None

    def go(self, kafka: Kafka, clickhouse: ClickHouse) -> None:
        """The next effect of its attempt at a block; or the next block."""
        if self.work is None:
            self.work = self._next(kafka)
            return
        partition, offset, index = self.work
        record: JournalRecord = kafka.log((JOURNAL, partition)).entries[offset].value
        blocks = [r.block for r in record.results]
        ids = [r.seal.block_id for r in record.results]
        if index == len(blocks):
            self.positions[partition], self.work = offset + 1, None
            return
        block = blocks[index]
        if block is None:  # only dead letters
            self.work = (partition, offset, index + 1)
        elif self.run is None:
            self.attempts += 1
            claim = f"{self.name}.{self.lives}.{self.attempts}"
            self.run, self.effect = plan.start(claim, block.rows, stamped=True)
        elif isinstance(self.effect, plan.Done):
            done, self.run, self.effect = self.effect, None, None
            if done.outcome != "retry":
                self.work = (partition, offset, index + 1)
        else:
            self._perform(kafka, clickhouse, ids[index], block, partition)

    def _next(self, kafka: Kafka) -> tuple[int, int, int] | None:
        """The first journal record behind the checkpoint of any partition."""
        for (topic, partition), log in kafka.logs.items():
            if topic == JOURNAL:
                for offset, _ in log.committed(self.positions.get(partition, 0)):
                    return partition, offset, 0
        return None

    def _perform(
        self,
        kafka: Kafka,
        clickhouse: ClickHouse,
        block_id: str,
        block: SealedBlock,
        partition: int,
    ) -> None:
        assert self.run is not None
        answer: plan.Answer = plan.Ok()
        match self.effect:
            case plan.ReadEntries():
                answer = clickhouse.entries(block_id)
            case plan.Claim(attempt, token):
                entry = plan.Entry(
                    plan.PREPARED,
                    attempt,
                    self.run.claim,
                    stamped=True,
                    rows=self.run.rows,
                    sent=plan.say_alone(token),
                )
                clickhouse.write(block_id, entry)
                if not clickhouse.ledger_on:  # negative control: insert without asking
                    self.run, self.effect = replace(self.run, at="insert"), plan.Insert(None)
                    return
            case plan.Ask():
                counted = sum(row[2] == block_id for row in clickhouse.rows)
                answer = plan.InsertFacts(counted=counted)
            case plan.AskRecord():
                answer = plan.ServerRecord("unclear")
            case plan.Insert():
                rows = read_block(kafka, block_id, block, partition)
                if rows is None:
                    return  # a marker of the block's transaction is still to come
                entries = clickhouse.entries(block_id)
                answer = plan.Wrote(0)
                if not clickhouse.ledger_on or plan.holds(entries, self.run.claim):
                    clickhouse.insert(block_id, rows)
                    answer = plan.Wrote(self.run.rows)
            case plan.Settle(attempt):
                if not clickhouse.ledger_on:
                    self.effect = plan.Done("loaded")
                    return
                if plan.holds(entries := clickhouse.entries(block_id), self.run.claim):
                    clickhouse.write(block_id, plan.Entry(plan.LOADED, attempt, self.run.claim))
                    answer = plan.Marked() if len(entries) == 1 else plan.Ok()
            case plan.Park(attempt, reason):
                entry = plan.Entry(plan.PARKED, attempt, self.run.claim, reason=reason)
                clickhouse.write(block_id, entry)
        self.run, self.effect = plan.step(self.run, answer)


def read_block(
    kafka: Kafka, block_id: str, block: SealedBlock, partition: int
) -> tuple[Row, ...] | None:
    """Rows of exactly the block's offsets, read_committed; None if not yet visible.

    Raises:
        AssertionError: the chunks there are not the block's.
    """
    log = kafka.log((block.topic, partition))
    if log.last_stable < block.next_offset:
        return None
    chunks = [chunk for _, chunk in log.committed(block.first_offset, block.next_offset)]
    assert [(c.block, c.seq) for c in chunks] == [(block_id, i) for i in range(block.chunks)], (
        f"{block_id}: {block.chunks} chunks journalled, {len(chunks)} visible"
    )
    table = block.topic.removeprefix("blocks.")
    return tuple((table, partition, block_id, row) for chunk in chunks for row in chunk.rows)
