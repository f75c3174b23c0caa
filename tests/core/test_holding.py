"""Tables of which nothing is known while ClickHouse is away do not stop others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from relay.core import effects as ef
from relay.core import events as ev
from relay.core.holding import OFFSET_BYTES, bytes_held_back, stalled_partitions
from relay.core.sealing import record_due, seals_due
from relay.core.state import Fencing, Phase, RelayState, SealReason
from relay.core.step import step
from tests.core.build import (
    arrival,
    buffer,
    limits,
    partition,
    polled,
    ready,
    result,
    through,
    with_limits,
)

NEW = frozenset({"d.new"})


def committed(state: RelayState) -> tuple[RelayState, tuple[ef.Effect, ...]]:
    """The state after the transaction that it has just begun, all of it acknowledged."""
    assert state.transaction is not None
    state, _ = step(state, ev.Begun())
    state, effects = through(
        state, ev.Produced(tuple(result(seal) for seal in state.transaction.seals))
    )
    (journal,) = effects
    assert isinstance(journal, ef.WriteJournal)
    state, _ = step(state, ev.JournalWritten({one.partition: 40 for one in journal.records}))
    if state.phase is Phase.SENDING_OFFSETS:
        state, _ = step(state, ev.OffsetsSent())
    return step(state, ev.Committed(clean=True))


def holding(**changes: Any) -> RelayState:
    """d.new is held back in partition 0, which has d.x as well; partition 1 has d.x alone."""
    state = with_limits(
        limits(**changes),
        p0=partition(0, 2, buffers={"d.new": buffer(0), "d.x": buffer(1)}),
        p1=partition(0, 1, buffers={"d.x": buffer(0)}),
    )
    return replace(state, held=NEW)


def due(state: RelayState) -> list[tuple[int, str, SealReason]]:
    return [(s.partition, s.table, s.reason) for s in seals_due(state)]


def test_a_table_that_nobody_knows_now_stops_no_other() -> None:
    """Red before: Begin had no such answer, and the relay waited in it for ClickHouse."""
    state = with_limits(limits(max_rows=1), p0=partition())
    state, effects = step(state, polled(0, arrival("d.new", 0), arrival("d.x", 1)))
    assert effects[-1] == ef.Begin(NEW | {"d.x"})

    state, effects = step(state, ev.TablesUndecided(NEW))
    assert effects == (ef.Begin(frozenset({"d.x"})),)
    state, _ = committed(state)

    owned = state.partitions[0]
    assert (owned.floor, owned.marks, owned.buffers.keys()) == (0, {"d.x": 2}, NEW)
    state, effects = through(state, polled(5, arrival("d.x", 2)))
    assert effects[-1] == ef.Begin(frozenset({"d.x"})), "and none that comes later"


def test_once_it_is_known_its_rows_go() -> None:
    state, _ = step(holding(max_rows=1), ev.TablesDecided(NEW))
    state, effects = step(state, polled(0))
    assert effects == (ef.Begin(NEW | {"d.x"}),)
    state, _ = committed(state)
    assert state.partitions[0].floor == 2


def test_a_message_of_it_alone_begins_nothing() -> None:
    state = with_limits(limits(max_rows=1), p0=partition())
    state, _ = step(state, polled(0, arrival("d.new", 0)))
    state, effects = step(state, ev.TablesUndecided(NEW))
    assert (state.phase, effects) == (Phase.READY, ())


def test_what_is_held_back_already_is_not_asked_about_again() -> None:
    state, _ = step(holding(max_rows=1), polled(0))
    with pytest.raises(AssertionError, match="held back already"):
        step(state, ev.TablesUndecided(NEW))


def test_of_many_transactions_those_of_others_follow() -> None:
    """With a transaction for each partition, the one that began first has the new table alone."""
    state = replace(
        with_limits(limits(max_rows=1), p0=partition(), p1=partition()), fencing=Fencing.PARTITION
    )
    state, _ = step(state, polled(0, arrival("d.new", 0), arrival("d.x", 0, p=1)))
    state, effects = step(state, ev.TablesUndecided(NEW))
    assert effects == (ef.Begin(frozenset({"d.x"}), 1),)


def test_a_changed_table_is_sealed_as_such_nevertheless() -> None:
    """Red before the reason was kept: what was read under the old columns is sealed under them."""
    buffers = {"d.new": buffer(0), "d.x": buffer(1)}
    state = with_limits(limits(max_rows=1), p0=partition(0, 2, buffers=buffers))
    state, _ = step(state, ev.SchemaChanged(frozenset({"d.x"})))
    state, _ = step(state, ev.TablesUndecided(NEW))
    assert state.transaction is not None
    assert [(one.table, one.reason) for one in state.transaction.seals] == [
        ("d.x", SealReason.SCHEMA)
    ]


@pytest.mark.parametrize(
    "rule",
    [
        {"max_bytes": 10},
        {"max_rows": 1},
        {"max_decoded_bytes": 0},
        {"max_reread": 0},
        {"max_buffer_bytes": 29},
        {"max_age_ms": 0},
        {"max_buffers": 0},
    ],
    ids=lambda one: next(iter(one)),
)
def test_no_rule_seals_it(rule: dict[str, int]) -> None:
    state = holding(**rule)
    assert ("d.new" in {table for _, table, _ in due(replace(state, held=frozenset()))}) or (
        "max_buffer_bytes" in rule
    )
    found = due(state)
    assert found
    assert "d.new" not in {table for _, table, _ in found}


def test_memory_that_it_takes_counts() -> None:
    """10 of 40 bytes are held back: 30 more are too many, where 30 alone are not."""
    state = holding(max_buffer_bytes=39)
    owned = {**state.partitions, 2: partition(0, 1, buffers={"d.y": buffer(0)})}
    assert len(due(replace(state, partitions=owned))) >= 1
    without = {**owned, 0: partition(1, 2, buffers={"d.x": buffer(1)})}
    assert due(replace(state, partitions=without)) == []
    keyed = {**without, 0: partition(0, 2, buffers={"d.new": buffer(0, bytes=0, beside=20)})}
    assert bytes_held_back(replace(state, partitions=keyed)) == 20, "keys and headers, too"


def test_it_takes_no_tokens_of_others() -> None:
    """Where one INSERT is allowed it is the others', however old and large what is held back is."""
    state = holding(max_age_ms=1_000, max_per_second=1.0)
    owned = {0: partition(0, 2, buffers={"d.new": buffer(0, bytes=10**6), "d.x": buffer(1)})}
    state = replace(state, partitions=owned, tokens=1.0, now_ms=5_000)
    assert due(state) == [(0, "d.x", SealReason.AGE)]


def test_no_flush_point_is_due_where_none_can_be_reached() -> None:
    """Else the others of its partition would be sealed at every poll for it."""
    state = replace(holding(flush_point_interval_ms=1_000), now_ms=5_000)
    assert due(state) == [(1, "d.x", SealReason.FLUSH)]


def test_an_idle_partition_is_recorded_again_in_time() -> None:
    """Its journal record must not grow older than the topic's retention while it waits."""
    state = replace(
        holding(keepalive_ms=1_000),
        partitions={0: partition(0, 1, buffers={"d.new": buffer(0)})},
        now_ms=1_000,
    )
    assert record_due(state, state.partitions[0])
    assert not record_due(replace(state, now_ms=999), state.partitions[0])


def test_a_stop_leaves_it_in_the_source() -> None:
    """The floor stays before it, also where others were cut, and the relay ends."""
    state, effects = step(holding(), ev.StopRequested())
    assert effects == (ef.Begin(frozenset({"d.x"})),)
    assert state.transaction is not None
    state = replace(state, transaction=replace(state.transaction, cut=1))
    state, effects = committed(state)
    assert effects == (ef.Exit(None),)
    assert state.partitions[0].floor == 0


def test_a_stop_meets_a_new_table() -> None:
    state = ready(p0=partition(0, 1, buffers={"d.new": buffer(0)}))
    state, _ = step(state, ev.StopRequested())
    _, effects = step(state, ev.TablesUndecided(NEW))
    assert effects == (ef.Exit(None),)


def test_a_stop_moves_the_floor_up_to_it() -> None:
    state = replace(ready(p0=partition(0, 3, buffers={"d.new": buffer(2)})), held=NEW)
    state, effects = step(state, ev.StopRequested())
    assert effects == (ef.Begin(frozenset()),)
    state, _ = committed(state)
    assert state.partitions[0].floor == 2


FITS = 2 * (10 + 2 * OFFSET_BYTES)
"""Memory of which half is what partition 0 takes for d.new: a message, and two offsets."""


@pytest.mark.parametrize(
    "bound",
    [
        {"max_buffer_bytes": FITS - 1},
        {"max_reread": 1},
        {"max_buffers": 0},
    ],
    ids=lambda one: next(iter(one)),
)
def test_only_partitions_that_hold_too_much_are_not_polled(bound: dict[str, int]) -> None:
    assert stalled_partitions(holding(**bound)) == {0}
    name, most = next(iter(bound.items()))
    assert stalled_partitions(holding(**{name: most + 2})) == frozenset()
    assert stalled_partitions(replace(holding(**bound), held=frozenset())) == frozenset()


def test_a_partition_is_polled_again_once_it_is_known() -> None:
    state, effects = step(holding(max_reread=1), ev.Polled(0))
    assert ef.Read(frozenset({1})) in effects
    state = replace(state, phase=Phase.READY, transaction=None)
    _, effects = step(state, ev.Polled(1))
    assert not [one for one in effects if isinstance(one, ef.Read)], "it is asked for once"
    state, _ = step(state, ev.TablesDecided(NEW))
    _, effects = step(state, ev.Polled(2))
    assert ef.Read(None) in effects


@pytest.mark.parametrize(
    "event", [ev.Revoked(frozenset({0})), ev.Failed(ev.Failure.UNKNOWN, "why")], ids=repr
)
def test_all_are_polled_again_after_what_drops_buffers(event: ev.Event) -> None:
    state, _ = step(replace(holding(max_reread=1), partitions=holding().partitions), ev.Polled(0))
    assert state.stalled == {0}
    state = replace(state, phase=Phase.READY, transaction=None)
    state, effects = step(state, event)
    if isinstance(event, ev.Failed):
        state, effects = step(state, ev.Replaced())
    assert ef.Read(None) in effects
    assert state.stalled == frozenset()


def test_an_assignment_reads_all_and_the_next_poll_says_who_waits() -> None:
    """An assignment resumes all partitions by itself, so who waits is paused again."""
    state, _ = step(holding(max_reread=1), ev.Polled(0))
    state = replace(state, phase=Phase.READY, transaction=None)
    state, _ = step(state, ev.Assigned(frozenset({0, 1})))
    _, effects = step(state, ev.Polled(1))
    assert ef.Read(frozenset({1})) in effects
