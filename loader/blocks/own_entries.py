"""The ledger's rows of an attempt: its claim, and that it loaded the block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loader.core import left_out as core_left_out
from loader.core import plan

if TYPE_CHECKING:
    from loader.blocks.attempt import Attempt


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


def _sent(attempt: Attempt) -> plan.Sent:
    if not attempt.token:
        return plan.TOGETHER
    remembers = attempt.target is not None and attempt.target.nature.window.parts > 0
    return plan.say_alone(attempt.token) if remembers else plan.UNREMEMBERED
