"""Every short schedule. A search that does not end within its time fails too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from relay.core.state import Fencing
from tests.model.search import search
from tests.model.world import World, log

pytestmark = pytest.mark.search

EVERY_KIND = frozenset(
    {"fault", "crash", "boot", "revoke", "rejoin", "stop", "move", "deliver", "timeout"}
)


def running(*source: str, names: str = "ab", **options: Any) -> World:
    """Processes that are in the group; a owns the only partition."""
    world = World([log(*source)], **options)
    for name in names:
        world.do(("boot", name))
    world.do(("move", 0, "a"))
    for uid in tuple(world.members) * 2:
        world.do(("go", uid))
    return world


@dataclass(frozen=True)
class Case:
    world: World
    faults: int
    kinds: frozenset[str] = EVERY_KIND
    settle: bool = False
    states: int = 1_000  # at least, so that a search which has become trivial is noticed


CASES = {
    "two relays, a fault of any kind": Case(running("x", "x"), 1),
    "two relays, three lost or repeated requests over two transactions": Case(
        running("x", "x", "x", "x"), 3, frozenset({"fault", "deliver"}), states=15_000
    ),
    "one relay, three faults of its requests over two transactions": Case(
        running("x", "x", "x", "x", names="a"), 3, frozenset({"fault", "deliver", "timeout"})
    ),
    "markers written one by one": Case(running("x", "x", marks_at_once=False), 1, states=8_000),
    "all comes to rest after any fault": Case(
        running("x", "x!", "|", "y-", loaders=1), 1, settle=True, states=500
    ),
    "across clusters, two relays, a fault of any kind": Case(
        running("x", "x", fencing=Fencing.PARTITION), 1
    ),
    "across clusters, two lost or repeated requests over two transactions": Case(
        running("x", "x", "x", "x", fencing=Fencing.PARTITION), 2, frozenset({"fault", "deliver"})
    ),
}

LONG_CASES = {
    "across clusters, all comes to rest after any fault": Case(
        running("x", "x!", "|", "y-", loaders=1, fencing=Fencing.PARTITION),
        1,
        settle=True,
        states=400,
    ),
    "two relays, two faults of any kind": Case(running("x", "x"), 2, states=80_000),
    "across clusters, two relays, two faults of any kind": Case(
        running("x", "x", fencing=Fencing.PARTITION), 2, states=30_000
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_no_schedule_breaks_exactly_once(case: Case) -> None:
    """Whatever the order of steps and faults, each message is in one block and nothing is torn."""
    look_through(case)


@pytest.mark.long
@pytest.mark.parametrize("case", LONG_CASES.values(), ids=LONG_CASES.keys())
def test_no_schedule_with_starts_and_stops_breaks_exactly_once(case: Case) -> None:
    """The same with two faults of any kind, and to the end of it all across clusters."""
    look_through(case)


def look_through(case: Case) -> None:
    """Search every schedule of the case."""
    result = search(
        case.world, faults=case.faults, kinds=case.kinds, depth=80, seconds=150, settle=case.settle
    )

    assert result.finding is None, str(result.finding)
    assert result.complete, f"only {result.states} states in the time allowed"
    assert result.states >= case.states
