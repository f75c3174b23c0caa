"""One attempt at one block on its way through loader.core.plan, and several of them together.

Receives answers, gives the next effect; knows no client.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from loader.clickhouse.client import ReplicaSilent, TableRefused
from loader.core import left_out as core_left_out
from loader.core import plan
from loader.core.retry_cause import RetryCause
from relay.clickhouse.errors import About
from relay.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from loader.clickhouse.tables import Target
    from relay.records_pb2 import Block


@dataclass(slots=True)
class AttemptFigures:
    """What one attempt at one block cost: plain numbers, as they travel through Spark.

    Attributes:
        fetch_seconds: to read its chunks.
        insert_seconds: until ClickHouse answered.
        inserts: statements sent; `failures` of them without success.
        repeats: of them under a token that an earlier claim may have used.
        found: 1 where the table had all of its rows already.
        queryable_ms: Unix milliseconds when an INSERT of it succeeded; 0: none did.
    """

    fetch_seconds: float = 0.0
    insert_seconds: float = 0.0
    inserts: int = 0
    failures: int = 0
    repeats: int = 0
    found: int = 0
    queryable_ms: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a block: a settled state of loader.core.plan, or "retry".

    `about`: of relay.clickhouse.errors, where ClickHouse answered its own statement with an error.
    `left_out`: messages of a loaded block that are not in the table, and wait for a person.
    `cause`: of a "retry".
    """

    block: str
    outcome: str
    rows: int
    reason: str
    figures: AttemptFigures = field(default_factory=AttemptFigures)
    about: str = ""
    left_out: int = 0
    cause: RetryCause = RetryCause.ERROR


@dataclass(slots=True)
class Attempt:
    """Where it stands.

    Attributes:
        ahead: what is probably inserted next.
        token: which of the block's own tokens its INSERT has, as the claim says; 0: a token of the
            claim's, and others may go with it.
        inserted: the server answered that an INSERT of it wrote its rows.
        asked: what the table holds of it was asked before.
        new: the ledger knew nothing of it before this attempt.
        made: for the INSERT, where the block's rows are not inserted as they are: by the table's
            transform, or without the messages that the table refuses.
        divisible: whether single messages of the block can be left out.
        closed: those that are left out are dead letters already, and no other can become one.
        letters_end: the end of its dead letters' partition before a claim for them.
        letters_by: which of the producers of dead letters was there when the ledger was last read.
    """

    block: Block
    run: plan.Run
    effect: plan.Effect
    target: Target | None
    ahead: Sequence[Block]
    token: int = 1
    inserted: bool = False
    asked: bool = False
    new: bool = False
    made: pa.RecordBatch | None = None
    divisible: bool = False
    closed: bool = False
    letters_end: int = -1
    letters_by: int = 0
    figures: AttemptFigures = field(default_factory=AttemptFigures)

    @property
    def version(self) -> str:
        """Return ClickHouse's, which is to insert the block."""
        return "" if self.target is None else self.target.version

    def answer(self, answer: plan.Answer) -> None:
        """Take an answer and move on to the next effect."""
        self.run, self.effect = plan.step(self.run, answer)


def guarded(attempts: Sequence[Attempt], work: Callable[[], None]) -> None:
    """Run `work`; if a server is unavailable or refuses, fail every unanswered attempt for now."""
    before = [attempt.effect for attempt in attempts]
    try:
        work()
    except (Unavailable, TableRefused) as error:
        answer = _failed(error)
        for attempt, effect in zip(attempts, before, strict=True):
            if attempt.effect is effect:
                attempt.answer(answer)


def _failed(error: Unavailable | TableRefused) -> plan.NoAnswer:
    if isinstance(error, ReplicaSilent):  # the next block of the table need not meet it
        return plan.NoAnswer(error.message, cause=RetryCause.STILL_RUNNING)
    about = About.TABLE if isinstance(error, TableRefused) else About.SERVER
    return plan.NoAnswer(error.message, about)


def alike(attempts: Sequence[Attempt]) -> list[list[Attempt]]:
    """Group attempts that one statement can mark: the same state, for the same reason.

    Marks of first attempts are a group for themselves: another statement writes them.
    """
    found: dict[tuple[object, ...], list[Attempt]] = {}
    for one in attempts:
        assert isinstance(one.effect, plan.Settle)
        effect = one.effect
        said = effect == plan.FIRST, effect.state, effect.reason, effect.made_by
        found.setdefault(said, []).append(one)
    return list(found.values())


def outcome(attempt: Attempt) -> Outcome:
    """Return the outcome of an attempt that is over."""
    done = attempt.effect
    assert isinstance(done, plan.Done)
    asked = attempt.asked and not attempt.inserted
    attempt.figures.found = int(asked and done.outcome == plan.LOADED)
    block, rows, figures = attempt.block, attempt.run.rows, attempt.figures
    left_out = 0
    if done.outcome == plan.LOADED and not core_left_out.is_left_out(block):
        left_out = len(block.left_out)
    said = done.outcome, rows, done.reason
    return Outcome(block.id, *said, figures, done.about, left_out, done.cause)


def retry(blocks: Sequence[Block], reason: str, about: str = "") -> list[Outcome]:
    """Return the outcome of blocks that cannot be attempted now."""
    return [Outcome(block.id, "retry", block.rows, reason, about=about) for block in blocks]
