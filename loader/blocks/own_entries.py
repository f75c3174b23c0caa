"""The ledger's rows of an attempt: its claim, and that it loaded the block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loader.core import left_out as core_left_out
from loader.core import plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from loader.blocks.attempt import Attempt
    from loader.clickhouse.ledger import Claimed


def claim_of(attempt: Attempt, made: plan.Made, *, dead: bool) -> plan.Entry:
    """Return the claim of an attempt that is about to be claimed.

    Args:
        attempt: its next effect is a Claim.
        made: what an INSERT under the claim inserts.
        dead: whether messages that are left out are to become dead letters.
    """
    effect, run, target = attempt.effect, attempt.run, attempt.target
    assert isinstance(effect, plan.Claim)
    if run.human == "dead":
        return plan.Entry(
            plan.PREPARED,
            effect.attempt,
            run.claim,
            attempt.letters_end,
            rows=made.rows,
            transform=made.transform,
            sent=plan.DEAD_LETTERS,
        )
    entry = plan.Entry(
        plan.PREPARED,
        effect.attempt,
        run.claim,
        -1 if target is None else target.counter,
        run.stamped,
        rows=made.rows,
        transform=made.transform,
        sent=_sent(attempt),
    )
    return core_left_out.on_claim(entry, attempt.block, dead=dead)


def loaded(run: plan.Run) -> plan.Entry:
    """Return the loaded row of a first attempt."""
    assert run.attempt == plan.FIRST.attempt
    return plan.Entry(
        plan.LOADED, run.attempt, run.claim, seen=0, rows=run.rows, transform=run.transform
    )


def may_be_orphan(
    attempt: Attempt, claimed: Callable[[], Claimed], stamp: str, *, several: bool
) -> bool:
    """Return whether the table may have the block's token without its part, and nobody needs it.

    A MergeTree table writes the token to its log before the part is in its place (MergeTreeSink).
    A server that is killed in between, or whose disk kept the one and not the other, takes a repeat
    for a duplicate, drops it, and answers that it wrote all rows. The token is not needed where a
    count tells what is there, or where nobody has inserted anything since the claim.

    Args:
        attempt: not the first of the block.
        claimed: tells when the block was first claimed; asks the ledger, so only where it matters.
        stamp: the block-id column.
        several: whether other blocks of the table are inserted in the same turn.
    """
    target = attempt.target
    if target is None or target.nature.window.counter != "parts":
        return False
    absent = attempt.run.human == "absent" and target.stamped(stamp)  # and counted, by the plan
    counted = absent or target.counts(stamp)
    if not counted and (several or target.nature.views):
        return False
    first = claimed()
    if not first.may_precede(first.started):
        return False  # no server was killed meanwhile
    return counted or 0 <= first.seen == target.counter


def _sent(attempt: Attempt) -> plan.Sent:
    if not attempt.alone:
        return plan.TOGETHER
    remembers = attempt.target is not None and attempt.target.nature.window.parts > 0
    return plan.ALONE if remembers else plan.UNREMEMBERED
