"""Long random histories from fixed seeds: two relays, two loaders, every fault."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from relay.core import events as ev
from relay.core.state import Fencing, Phase, SealReason
from relay.core.step import IN_TRANSACTION, TRANSITIONS, Step, step
from tests.model import member as member_module
from tests.model import search as search_module
from tests.model.judge import partitions
from tests.model.member import FAULTS, Guards, Member
from tests.model.quiet import settle
from tests.model.records import JOURNAL
from tests.model.search import Searched, Walk, walk

if TYPE_CHECKING:
    from relay.core.state import RelayState
    from tests.model.world import World

pytestmark = pytest.mark.search

STEPS = 100_000
HISTORY_STEPS = 300


def test_without_reading_again_what_was_paused_messages_are_lost() -> None:
    """Negative control: a client that goes on behind what it threw away at a pause."""
    guards = Guards(paused_is_read_again=False)

    finding = walk(Walk(1, 300, HISTORY_STEPS, guards=guards)).finding

    assert finding is not None
    assert "is in no block" in finding.what


@dataclass
class Seen:
    """What random histories came by.

    Attributes:
        turns: kinds of event, and whether partitions were read in turns before and after.
        cut: seals of which something was left.
    """

    results: list[Searched] = field(default_factory=list)
    transitions: set[tuple[Phase, type[Any]]] = field(default_factory=set)
    faults: set[tuple[type[Any], str]] = field(default_factory=set)
    reasons: set[SealReason] = field(default_factory=set)
    turns: set[tuple[type[Any], bool, bool]] = field(default_factory=set)
    cut: int = 0

    def step(self, state: RelayState, event: ev.Event) -> Step:
        self.transitions.add((state.phase, type(event)))
        after = step(state, event)
        if isinstance(event, ev.Produced):
            self.cut += sum(result.left is not None for result in event.results)
        self.turns.add((type(event), state.turns is not None, after[0].turns is not None))
        return after

    def settle(self, world: World) -> None:
        settle(world)
        for partition in partitions(world.kafka):
            for _, record in world.kafka.log((JOURNAL, partition)).committed():
                self.reasons.update(result.seal.reason for result in record.results)


@pytest.fixture(scope="module")
def seen() -> Seen:
    """Of a hundred thousand steps under each fencing."""
    made, go = Seen(), Member.go

    def seen_go(self: Member, kafka: Any, now_ms: int, fault: str = "") -> None:
        if fault:
            made.faults.add((type(self.todo[0]), fault))
        go(self, kafka, now_ms, fault)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(member_module, "step", made.step)
        patched.setattr(Member, "go", seen_go)
        patched.setattr(search_module, "come_to_rest", made.settle)
        for fencing in Fencing:
            histories = -(-STEPS // HISTORY_STEPS)
            made.results.append(walk(Walk(1, histories, HISTORY_STEPS, fencing=fencing)))
    return made


def test_no_anomaly_in_a_hundred_thousand_steps(seen: Seen) -> None:
    """Random histories never break exactly-once, and after each all comes to rest."""
    for result in seen.results:
        assert result.finding is None, str(result.finding)
        assert result.steps >= STEPS


def test_the_histories_go_everywhere(seen: Seen) -> None:
    """The random histories use every reachable transition, fault and reason to seal."""
    assert seen.faults == {(effect, fault) for effect, names in FAULTS.items() for fault in names}
    assert seen.reasons == set(SealReason)
    assert seen.cut > 100
    wanted = {(ev.Polled, False, True), (ev.Polled, True, True), (ev.Polled, True, False)}
    assert wanted <= seen.turns
    assert {(ev.Revoked, True, False), (ev.Aborted, True, False)} <= seen.turns
    assert {key for key in TRANSITIONS if key not in seen.transitions} == NEVER


IN_POLL_ONLY = {Phase.ABORTING, Phase.REPLACING, *IN_TRANSACTION}
"""Partitions are given inside a poll, and no relay polls in these phases."""
NEVER = {
    (Phase.BEGINNING, ev.SourceUnseen),
    *((phase, ev.Assigned) for phase in IN_POLL_ONLY),
    *((Phase.STOPPED, event) for event in (ev.Assigned, ev.Polled, ev.Failed)),
}
"""Allowed by step, never seen here: tests/core has them."""
