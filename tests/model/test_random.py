"""Long random histories from fixed seeds: two relays, two loaders, every fault."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from relay.core import events as ev
from relay.core.state import Fencing, Phase, SealReason
from relay.core.step import IN_TRANSACTION, TRANSITIONS, Step, step
from tests.model import member as member_module
from tests.model import search as search_module
from tests.model.judge import partitions
from tests.model.member import FAULTS, AdapterGuards, Member
from tests.model.quiet import settle
from tests.model.records import JOURNAL
from tests.model.search import Walk, walk

if TYPE_CHECKING:
    from relay.core.state import RelayState
    from tests.model.world import World

pytestmark = pytest.mark.search

STEPS = 100_000
HISTORY_STEPS = 300


@pytest.mark.parametrize("fencing", Fencing)
def test_no_anomaly_in_a_hundred_thousand_steps(fencing: Fencing) -> None:
    """Random histories never break exactly-once, and after each all comes to rest."""
    histories = -(-STEPS // HISTORY_STEPS)
    result = walk(Walk(1, histories, HISTORY_STEPS, fencing=fencing))

    assert result.finding is None, str(result.finding)
    assert result.steps >= STEPS


def test_without_reading_again_what_was_paused_messages_are_lost() -> None:
    """Negative control: a client that goes on behind what it threw away at a pause."""
    adapters = AdapterGuards(paused_is_read_again=False)

    finding = walk(Walk(1, 300, HISTORY_STEPS, adapters=adapters)).finding

    assert finding is not None
    assert "is in no block" in finding.what


def test_the_histories_go_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The random histories use every reachable transition, fault and reason to seal."""
    transitions: set[tuple[Phase, type[Any]]] = set()
    faults: set[tuple[type[Any], str]] = set()
    reasons: set[SealReason] = set()
    turns: set[tuple[type[Any], bool, bool]] = set()

    def seen_step(state: RelayState, event: ev.Event) -> Step:
        transitions.add((state.phase, type(event)))
        after = step(state, event)
        turns.add((type(event), state.turns is not None, after[0].turns is not None))
        return after

    def seen_go(self: Member, kafka: Any, now_ms: int, fault: str = "") -> None:
        if fault:
            faults.add((type(self.todo[0]), fault))
        go(self, kafka, now_ms, fault)

    def seen_settle(world: World) -> None:
        settle(world)
        for partition in partitions(world.kafka):
            for _, record in world.kafka.log((JOURNAL, partition)).committed():
                reasons.update(result.seal.reason for result in record.results)

    go = Member.go
    monkeypatch.setattr(member_module, "step", seen_step)
    monkeypatch.setattr(Member, "go", seen_go)
    monkeypatch.setattr(search_module, "come_to_rest", seen_settle)
    for fencing in Fencing:
        result = walk(Walk(seed=5_000, histories=300, fencing=fencing))
        assert result.finding is None, str(result.finding)

    assert faults == {(effect, fault) for effect, names in FAULTS.items() for fault in names}
    assert reasons == set(SealReason)
    assert {(ev.Polled, False, True), (ev.Polled, True, True), (ev.Polled, True, False)} <= turns
    assert {(ev.Revoked, True, False), (ev.Aborted, True, False)} <= turns
    assert {key for key in TRANSITIONS if key not in transitions} == NEVER


IN_POLL_ONLY = {Phase.ABORTING, Phase.REPLACING, *IN_TRANSACTION}
"""Partitions are given inside a poll, and no relay polls in these phases."""
NEVER = {(phase, ev.Assigned) for phase in IN_POLL_ONLY} | {
    (Phase.STOPPED, event) for event in (ev.Assigned, ev.Polled, ev.Failed)
}
"""Allowed by step, never seen here: tests/core has them."""
