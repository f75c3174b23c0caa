"""What each command does with a running campaign: rounds of faults until a count or a time is
reached, each followed by a pause in which everything has to arrive."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from tests.chaos import schedule
from tests.chaos.faults import perform
from tests.chaos.pauses import judge, pause
from tests.chaos.schedule import LOADER_POINTS, RELAY_POINTS, Fault
from tests.chaos.slots import Cycle, Slots, shuffled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tests.chaos.campaign import Campaign
    from tests.chaos.programs import Program

ROUND_SECONDS = 60.0


def mixed(campaign: Campaign, seconds: float, kinds: Iterable[str], every: float) -> None:
    """Faults of these kinds, one in `every` seconds, over `seconds` of rounds."""
    begun, number = time.monotonic(), 0
    while (left := begun + seconds - time.monotonic()) > 0:
        faults(campaign, number, kinds, every, min(left, ROUND_SECONDS))
        number += 1


def faults(
    campaign: Campaign,
    number: int,
    kinds: Iterable[str],
    every: float,
    length: float,
    done: Callable[[], bool] = lambda: False,
) -> None:
    """One round of faults of these kinds, and its pause."""
    seed = campaign.options.seed * 1000 + number
    campaign.round(schedule.plan(seed, length, kinds, every), perform, length, done)
    pause(campaign)


def kills(campaign: Campaign, count: int) -> None:
    """SIGKILLs of relays at random moments of their first seconds, which hold all their steps."""
    chance = _chance(campaign)
    todo = [Cycle("random", after=chance.uniform(0.5, 6)) for _ in range(count)]
    cycles(campaign, [(Slots(campaign, todo), campaign.members)])


def failpoints(campaign: Campaign, each: int, points: Sequence[str] = RELAY_POINTS) -> None:
    """SIGKILL `each` times at each point of the relay, and at each of the loader."""
    chance = _chance(campaign)
    relays = [Cycle(p, chance.randint(1, 3)) for p in points for _ in range(each)]
    loaders = [Cycle(p, chance.randint(1, 3)) for p in LOADER_POINTS for _ in range(each)]
    cycles(
        campaign,
        [
            (Slots(campaign, shuffled(chance, relays)), campaign.members),
            (Slots(campaign, shuffled(chance, loaders)), campaign.loaders),
        ],
    )


def loader_kills(campaign: Campaign, count: int) -> None:
    """A third at random, the others at each step of a block."""
    chance = _chance(campaign)
    todo = [Cycle("random", after=chance.uniform(0.5, 5)) for _ in range(count // 3)]
    while len(todo) < count:
        todo.append(Cycle(LOADER_POINTS[len(todo) % len(LOADER_POINTS)], chance.randint(1, 6)))
    cycles(campaign, [(Slots(campaign, shuffled(chance, todo)), campaign.loaders)])


def zombies(
    campaign: Campaign, count: int, sleeps: tuple[float, float] = (5.5, 9.0), number: int = 0
) -> None:
    """Relays stopped inside a transaction past session and transaction, and continued.

    Args:
        campaign: runs.
        count: of them.
        sleeps: the shortest and the longest, in seconds.
        number: of the round, where there are several.
    """
    chance = _chance(campaign, number)
    points = ("mid_produce", "before_send_offsets", "after_send_offsets", "before_commit")
    todo = [
        Cycle(points[i % len(points)], chance.randint(1, 3), sleeps=chance.uniform(*sleeps))
        for i in range(count)
    ]
    # One member always stays, so that there is somebody to take over.
    cycles(campaign, [(Slots(campaign, shuffled(chance, todo)), campaign.members[1:])])


def cycles(campaign: Campaign, work: Sequence[tuple[Slots, Sequence[Program]]]) -> None:
    """Rounds, until every slot's list is done."""

    def turn() -> bool:
        for slots, programs in work:
            slots.turn(programs)
        return all(slots.over() for slots, _ in work)

    while not turn():
        try:
            campaign.round((), perform, ROUND_SECONDS, turn)
        finally:
            for slots, _ in work:
                slots.undo()
        pause(campaign)


def bounces(campaign: Campaign, count: int, coordinators: int) -> None:
    """Brokers down and up, one after the other; `coordinators` of them are killed in a commit."""
    chance = _chance(campaign)
    kinds = ["coordinator_kill"] * coordinators + ["bounce_broker"] * (count - coordinators)
    todo = chance.sample(kinds, len(kinds))
    done = "coordinator_killed_in_commit"

    def one() -> bool:
        """The next, when the one before is over; True when none is left."""
        if campaign.idle() and todo:
            kind = todo.pop()
            detail = chance.choice(schedule.KINDS["bounce_broker"].details)
            fault = Fault(0, kind, chance.randrange(1 << 16), chance.uniform(0, 2), detail)
            campaign.later([(0.0, kind, lambda: campaign.fault(fault, perform))])
        return campaign.idle() and not todo

    while todo:
        campaign.round((), perform, ROUND_SECONDS, one)
        pause(campaign)
        # A member that had nothing to commit, or a round that ended before it did.
        missed = coordinators - campaign.performed[done] - todo.count("coordinator_kill")
        todo += ["coordinator_kill"] * missed


def large(
    campaign: Campaign, rows: int, transactions: int, kinds: Iterable[str], every: float
) -> None:
    """Mixed faults until the source has committed so many rows, in so many transactions."""

    def enough() -> bool:
        truth = campaign.source.truth
        ended = truth.transactions["committed"] + truth.transactions["aborted"]
        return truth.rows("committed") >= rows and ended >= transactions

    number = 0
    while not enough():
        faults(campaign, number, kinds, every, ROUND_SECONDS, enough)
        number += 1


def _chance(campaign: Campaign, number: int = 0) -> random.Random:
    return random.Random(f"cycles {campaign.options.seed}" + (f" {number}" if number else ""))


def controlled(campaign: Campaign, one: Callable[[int], None], seconds: float) -> float | None:
    """Rounds, each judged, until one is red; the seconds until then, or None.

    Args:
        campaign: runs.
        one: a round with its pause, by its number.
        seconds: given to all of them.
    """
    begun, number = time.monotonic(), 0
    while time.monotonic() < begun + seconds:
        one(number)
        judge(campaign)
        if campaign.anomalies:
            return time.monotonic() - begun
        number += 1
    return None
