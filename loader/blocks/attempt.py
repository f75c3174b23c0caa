"""One attempt at one block on its way through loader.core.plan, and its rows in the ledger.

Receives answers, gives the next effect; knows no client.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from loader.clickhouse.client import ReplicaSilent, TableRefused
from loader.clickhouse.tables import Target
from loader.core import left_out as core_left_out
from loader.core import plan
from loader.core.retry_cause import RetryCause
from relay.clickhouse.errors import About
from relay.errors import Unavailable
from relay.records_pb2 import Block

REFUSED = "refused"
"""The outcome where ClickHouse denies its user the work; the reason is the error as printed."""


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
    """How an attempt at a block ended: in a settled state of loader.core.plan, "retry" or REFUSED.

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
    """One attempt at one block: where it stands in the plan, and what it has found out.

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


@contextlib.contextmanager
def answer_errors(attempts: Sequence[Attempt]) -> Iterator[None]:
    """Fail every attempt that has no answer yet, for now, if a server is unavailable or refuses."""
    before = [attempt.effect for attempt in attempts]
    try:
        yield
    except (Unavailable, TableRefused) as error:
        if isinstance(error, ReplicaSilent):  # the next block of the table need not meet it
            answer = plan.NoAnswer(error.message, cause=RetryCause.STILL_RUNNING)
        else:
            about = About.TABLE if isinstance(error, TableRefused) else About.SERVER
            answer = plan.NoAnswer(error.message, about)
        for attempt, effect in zip(attempts, before, strict=True):
            if attempt.effect is effect:
                attempt.answer(answer)


def group_marks(attempts: Sequence[Attempt]) -> list[list[Attempt]]:
    """Group attempts that one statement can mark: the same state, for the same reason.

    Marks of first attempts are a group for themselves: another statement writes them.
    """
    groups: dict[tuple[object, ...], list[Attempt]] = {}
    for attempt in attempts:
        assert isinstance(attempt.effect, plan.Settle)
        effect = attempt.effect
        mark = effect == plan.FIRST, effect.state, effect.reason, effect.made_by
        groups.setdefault(mark, []).append(attempt)
    return list(groups.values())


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
    return Outcome(
        block.id, done.outcome, rows, done.reason, figures, done.about, left_out, done.cause
    )


def retry(blocks: Sequence[Block], reason: str, about: str = "") -> list[Outcome]:
    """Return the outcome of blocks that cannot be attempted now."""
    return [Outcome(block.id, "retry", block.rows, reason, about=about) for block in blocks]


def claim_of(attempt: Attempt, made: plan.Made, *, dead: bool) -> plan.Entry:
    """Return the ledger's row that claims the block, for an INSERT of `made`.

    `dead`: messages that are left out are to become dead letters.
    """
    effect, run, target = attempt.effect, attempt.run, attempt.target
    assert isinstance(effect, plan.Claim)
    entry = plan.Entry(
        plan.PREPARED, effect.attempt, run.claim, rows=made.rows, transform=made.transform
    )
    if run.human == "dead":
        return replace(entry, seen=attempt.letters_end, sent=plan.DEAD_LETTERS)
    counter = -1 if target is None else target.counter
    entry = replace(entry, seen=counter, stamped=run.stamped, sent=_sent(attempt))
    return core_left_out.on_claim(entry, attempt.block, dead=dead)


def loaded(run: plan.Run) -> plan.Entry:
    """Return the loaded row of a first attempt."""
    assert run.attempt == plan.FIRST.attempt
    return plan.Entry(
        plan.LOADED, run.attempt, run.claim, seen=0, rows=run.rows, transform=run.transform
    )


def _sent(attempt: Attempt) -> plan.Sent:
    if not attempt.token:
        return plan.TOGETHER
    remembers = attempt.target is not None and attempt.target.nature.window.parts > 0
    return plan.say_alone(attempt.token) if remembers else plan.UNREMEMBERED
