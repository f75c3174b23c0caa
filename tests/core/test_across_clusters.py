"""Source and target in two clusters: a transaction for each partition, fenced by its id."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relay.core import effects as ef
from relay.core import events as ev
from relay.core.offsets import CommittedOffset
from relay.core.records import JournalEnd
from relay.core.state import Fencing, Partition, Phase, RelayState
from relay.core.step import IllegalEventError, step
from relay.core.takeover import take_over
from relay.errors import ContractBroken, Fenced
from tests.core.build import (
    arrival,
    found,
    limits,
    partition,
    polled,
    result,
    through,
    with_limits,
)

END = JournalEnd(9, CommittedOffset(10, 3, 7), 4)


def across(state: RelayState) -> RelayState:
    return replace(state, fencing=Fencing.PARTITION)


def begun() -> RelayState:
    """Partitions 0 and 1 are due, and 0 is to begin."""
    state = across(with_limits(limits(max_rows=2), p0=partition(), p1=partition()))
    due = polled(0, arrival("d.x", 0, 1), arrival("d.x", 0, 1, p=1))
    state, effects = step(state, due)
    assert effects[-1] == ef.Begin(frozenset({"d.x"}), 0)
    return state


def committing(state: RelayState, index: int) -> RelayState:
    """The transaction of this partition, up to its commit."""
    assert state.transaction is not None
    results = tuple(result(seal) for seal in state.transaction.seals)
    answers = ev.Begun(), ev.Produced(results), ev.JournalWritten({index: 40 + index})
    state, effects = through(state, *answers)
    assert (state.phase, effects) == (Phase.COMMITTING, (ef.Commit(),))
    return state


def test_predecessors_are_fenced_before_the_truth_is_read() -> None:
    state, effects = step(across(with_limits(limits())), ev.Assigned(frozenset({0, 1})))
    assert effects == (ef.Fence(frozenset({0, 1})),)

    state, effects = step(state, ev.PredecessorsFenced({0: END, 1: END}))
    assert effects == (ef.ReadTruth(frozenset({0, 1}), {0: END, 1: END}),)

    state, effects = step(state, ev.TruthRead((found(),), 0))
    assert effects == (ef.Seek(0, 10),)
    assert state.pending == {1}


def test_a_partition_that_went_while_it_was_fenced_is_not_read() -> None:
    asked = ev.Assigned(frozenset({0, 1})), ev.Revoked(frozenset({0}))
    state, effects = through(
        across(with_limits(limits())), *asked, ev.PredecessorsFenced({0: END, 1: END})
    )
    assert effects == (ef.ReadTruth(frozenset({1}), {1: END}),)

    assert step(state, ev.Revoked(frozenset({1})))[0].pending == frozenset()


def test_each_partition_has_a_transaction_of_its_own_one_after_the_other() -> None:
    """Only what is committed is shown to the group; nothing is polled in between."""
    state, effects = step(committing(begun(), 0), ev.Committed(clean=True))
    assert state.phase is Phase.BEGINNING
    assert effects == (
        ef.ShowOffsets({0: CommittedOffset(2, 2, 40)}),
        ef.Begin(frozenset({"d.x"}), 1),
    )
    assert (state.partitions[0].floor, state.partitions[1].floor) == (2, 0)

    state, effects = step(committing(state, 1), ev.Committed(clean=True))
    assert state.phase is Phase.READY
    assert effects == (ef.ShowOffsets({1: CommittedOffset(2, 2, 41)}),)
    assert state.partitions[1].floor == 2


def test_no_floors_are_sent_into_the_transaction() -> None:
    with pytest.raises(IllegalEventError):
        step(committing(begun(), 0), ev.OffsetsSent())


def test_an_unclean_commit_leaves_the_others_for_later() -> None:
    """All ids are taken over again: the other partition is read again from where it stands."""
    state, effects = step(committing(begun(), 0), ev.Committed(clean=False))
    assert [type(effect) for effect in effects] == [ef.ShowOffsets, ef.Replace]

    state, effects = step(state, ev.Replaced())
    both = frozenset({0, 1})
    assert effects == (ef.Drop(both), ef.Fence(both))
    assert (state.phase, state.pending, state.transaction) == (Phase.READY, both, None)


def test_an_abort_drops_what_was_to_follow() -> None:
    state, effects = through(begun(), ev.Failed(ev.Failure.ABORT, "why"), ev.Aborted())
    assert effects[-1] == ef.Fence(frozenset({0, 1}))
    assert state.transaction is None


def test_whoever_is_fenced_ends() -> None:
    _, effects = step(begun(), ev.Failed(ev.Failure.FENCED, "why"))
    (exit_,) = effects
    assert isinstance(exit_, ef.Exit)
    assert exit_.error is not None
    assert type(exit_.error) is Fenced
    assert "source partition" in exit_.error.message


def test_stop_commits_every_partition_before_the_end() -> None:
    state = across(with_limits(limits(), p0=partition(), p1=partition()))
    state, _ = step(state, polled(0, arrival("d.x", 0), arrival("d.x", 0, p=1)))
    state, effects = step(state, ev.StopRequested())
    assert effects == (ef.Begin(frozenset({"d.x"}), 0),)
    state, _ = step(committing(state, 0), ev.Committed(clean=True))
    _, effects = step(committing(state, 1), ev.Committed(clean=True))
    assert effects[-1] == ef.Exit(None)


@pytest.mark.parametrize("shown", [None, CommittedOffset(9, 2, 5), CommittedOffset(10, 3, 7)])
def test_a_group_that_lags_changes_nothing(shown: CommittedOffset | None) -> None:
    assert isinstance(take_over(found(shown=shown), 0), Partition)


@pytest.mark.parametrize("head", [{}, {"committed": None, "record": None, "start_offset": 0}])
def test_a_group_that_leads_means_that_the_journal_lost_records(head: dict[str, None]) -> None:
    taken = take_over(found(shown=CommittedOffset(12, 4, 9), **head), 0)
    assert isinstance(taken, ContractBroken)
    assert "floor 12 (n=4)" in taken.message
