"""Negative controls: without a guard the same searches find an anomaly, and name it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from relay.core.state import Fencing
from tests.model.member import Guards
from tests.model.quiet import settle
from tests.model.search import Finding, Walk, search, walk
from tests.model.world import World, log

pytestmark = pytest.mark.search


@dataclass(frozen=True)
class Control:
    """A guard taken away, the faults that make it matter, and the anomaly that follows."""

    without: dict[str, Any]
    named: str
    faults: int
    kinds: frozenset[str]
    source: tuple[str, ...] = ("x", "x")
    fencing: Fencing = Fencing.GROUP


CONTROLS = {
    # The copy of an EndTxn commits the next transaction before its journal record is in.
    "epoch bump after an unknown commit": Control(
        {"guards": Guards(epoch_bump_after_unknown=False)},
        "no journal record lists it",
        2,
        frozenset({"fault", "deliver"}),
        ("x", "x", "x", "x"),
    ),
    # The copy of an aborting EndTxn aborts the blocks of the next transaction.
    "epoch bump after an unclean abort": Control(
        {"guards": Guards(unclean_abort_is_unknown=False)},
        "is not the journal's head",
        3,
        frozenset({"fault", "deliver", "revoke"}),
    ),
    # Metadata of a generation in which another member owns and has read the partition.
    "group metadata at begin": Control(
        {"guards": Guards(metadata_at_begin=False)},
        "duplicate: 0@0 is in 2 blocks",
        2,
        frozenset({"move", "rejoin"}),
    ),
    # A buffer outlives the ownership of its partition.
    "abort on revoke": Control(
        {"guards": Guards(abort_on_revoke=False)},
        "n=1 follows 1",
        3,
        frozenset({"move", "stop", "revoke"}),
    ),
    # Source and target are two clusters, so that no generation stops a paused owner's commit.
    "a transactional id per source partition": Control(
        {"guards": Guards(id_per_partition=False)},
        "n=1 follows 1",
        2,
        frozenset({"move"}),
        fencing=Fencing.PARTITION,
    ),
    # A paused owner commits between the new owner's look at the journal and its own commit.
    "fenced before the journal's head is read": Control(
        {"guards": Guards(fence_before_truth=False)},
        "n=1 follows 1",
        2,
        frozenset({"move"}),
        fencing=Fencing.PARTITION,
    ),
    # A log's end that is told before all messages in front of it were given.
    "the end comes behind the last message": Control(
        {"guards": Guards(end_comes_last=False)},
        "lost: 0@2 of x is in no block",
        0,
        frozenset(),
        ("x", "x", "x"),
    ),
}


@pytest.mark.parametrize("name", CONTROLS)
def test_without_the_guard_the_search_finds_it(name: str) -> None:
    """With one guard off there is a short schedule that breaks the promise."""
    finding = _finding(name)

    assert finding is not None
    assert CONTROLS[name].named in finding.what, str(finding)


@pytest.mark.parametrize("name", CONTROLS)
def test_with_the_guard_the_same_schedule_is_harmless(name: str) -> None:
    """The schedule that breaks the promise without the guard keeps it with the guard."""
    finding = _finding(name)
    assert finding is not None
    world = _world(CONTROLS[name], {})

    for action in finding.schedule:
        if action in world.turns() or action in world.faults():
            world.do(action)
            world.check()
    settle(world)


def test_without_the_ledger_rows_are_doubled() -> None:
    """A loader that does not ask the ledger loads a block again once its token has left."""
    result = walk(Walk(seed=1, histories=20, ledger=False))

    assert result.finding is not None
    assert "times in ClickHouse" in result.finding.what, str(result.finding)


@cache
def _finding(name: str) -> Finding | None:
    """What the search finds without the guard; both tests of it look at one search."""
    control = CONTROLS[name]
    world = _world(control, control.without)
    kinds = control.kinds
    return search(world, faults=control.faults, kinds=kinds, depth=30, seconds=60).finding


def _world(control: Control, switches: dict[str, Any]) -> World:
    world = World([log(*control.source)], fencing=control.fencing, **switches)
    for action in (("boot", "a"), ("boot", "b"), ("move", 0, "a")):
        world.do(action)
    for uid in tuple(world.members) * 2:
        world.do(("go", uid))
    return world
