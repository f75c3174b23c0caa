"""Every transition of the relay's state machine, and every event that must not be."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from relay.core import effects as ef
from relay.core import events as ev
from relay.core.buffering import split_buffer
from relay.core.offsets import CommittedOffset
from relay.core.records import SealResult
from relay.core.state import Fencing, Phase, RelayState, SealReason
from relay.core.step import (
    IN_TRANSACTION,
    MAX_CUT,
    MAX_FAILURES,
    TRANSITIONS,
    IllegalEventError,
    step,
)
from relay.errors import ContractBroken, Fenced, Refused, RelayError, Unavailable, WrongCredentials
from tests.core.build import (
    arrival,
    buffer,
    found,
    in_phase,
    limits,
    partition,
    polled,
    ready,
    record,
    result,
    through,
    with_limits,
)

EVENTS: tuple[ev.Event, ...] = (
    ev.Assigned(frozenset({0})),
    ev.Revoked(frozenset({0})),
    ev.PredecessorsFenced({}),
    ev.TruthRead((), 0),
    ev.Polled(0),
    ev.SchemaChanged(frozenset({"d.x"})),
    ev.StopRequested(),
    ev.Begun(),
    ev.SourceUnseen(),
    ev.TablesUndecided(frozenset({"d.x"})),
    ev.TablesDecided(frozenset({"d.x"})),
    ev.Produced(()),
    ev.JournalWritten({}),
    ev.OffsetsSent(),
    ev.Committed(clean=True),
    ev.Aborted(),
    ev.Replaced(),
    ev.Failed(ev.Failure.ABORT, "why"),
)
ILLEGAL = [(p, e) for p in Phase for e in EVENTS if (p, type(e)) not in TRANSITIONS]
IN_ORDER = sorted(IN_TRANSACTION, key=lambda phase: phase.value)


def test_a_relay_knows_how_many_partitions_the_source_has() -> None:
    """As last told: the source may have grown since."""
    state, _ = through(ready(), ev.Assigned(frozenset({0})), ev.TruthRead((found(),), 77, 3))
    assert (len(state.partitions), state.source_partitions) == (1, 3)
    state, _ = through(state, ev.Assigned(frozenset({0, 1})), ev.TruthRead((), 78, 4))
    assert state.source_partitions == 4


def test_every_event_is_tried() -> None:
    """The list above has each kind of event, so the illegal pairs below are all there are."""
    assert {type(event) for event in EVENTS} == set(ev.Event.__args__)
    assert len(ILLEGAL) + len(TRANSITIONS) == len(Phase) * len(EVENTS)


@pytest.mark.parametrize(("phase", "event"), ILLEGAL, ids=lambda x: getattr(x, "name", None))
def test_illegal_events_raise_and_change_nothing(phase: Phase, event: ev.Event) -> None:
    """An event not in the table raises, and the state is what it was."""
    state = in_phase(phase)
    before = repr(state)

    with pytest.raises(IllegalEventError, match=f"{type(event).__name__} in phase {phase.name}"):
        step(state, event)

    assert repr(state) == before


@pytest.mark.parametrize("phase", Phase)
def test_step_never_changes_its_argument(phase: Phase) -> None:
    """A state is a value: what comes out is new."""
    for event in EVENTS:
        state = in_phase(phase)
        before = repr(state)
        with suppress(AssertionError, KeyError):  # a wrong answer, e.g. no result for a seal
            step(state, event)
        assert repr(state) == before


# ---- ownership ------------------------------------------------------------------------------


def test_assigned_reads_the_truth_of_new_partitions_only() -> None:
    state, effects = step(ready(p0=partition()), ev.Assigned(frozenset({0, 1})))

    assert effects == (ef.ReadTruth(frozenset({1})),)
    assert state.pending == {1}


def test_assigned_nothing_new_asks_for_nothing() -> None:
    state, effects = step(ready(p0=partition()), ev.Assigned(frozenset({0})))

    assert effects == ()
    assert state == ready(p0=partition())


def test_truth_read_takes_over_and_seeks_to_the_floor() -> None:
    state, effects = through(ready(), ev.Assigned(frozenset({0})), ev.TruthRead((found(),), 77))

    assert effects == (ef.Seek(0, 10),)
    assert (state.pending, state.now_ms) == (frozenset(), 77)
    assert state.partitions[0].marks == {"d.x": 12}


def test_truth_of_a_partition_revoked_meanwhile_is_ignored() -> None:
    state, effects = through(
        ready(),
        ev.Assigned(frozenset({0})),
        ev.Revoked(frozenset({0})),
        ev.TruthRead((found(),), 0),
    )

    assert effects == ()
    assert state.partitions == {}


def test_disagreeing_truth_stops_the_process() -> None:
    state, effects = through(
        ready(), ev.Assigned(frozenset({0})), ev.TruthRead((found(record=None),), 0)
    )

    assert state.phase is Phase.STOPPED
    assert isinstance(effects[-1], ef.Exit)
    assert type(effects[-1].error) is ContractBroken


def test_revoked_outside_a_transaction_drops_only_these_partitions() -> None:
    kept = partition(0, 1, buffers={"d.x": buffer(0)})
    state, effects = step(ready(p0=partition(), p1=kept), ev.Revoked(frozenset({0})))

    assert effects == (ef.Drop(frozenset({0})),)
    assert state.partitions == {1: kept}


@pytest.mark.parametrize("phase", IN_ORDER)
def test_revoked_in_a_transaction_aborts_it(phase: Phase) -> None:
    state, effects = step(in_phase(phase), ev.Revoked(frozenset({0})))

    assert effects == (ef.Drop(frozenset({0})), ef.Abort())
    assert (state.phase, state.transaction) == (Phase.ABORTING, None)


@pytest.mark.parametrize("phase", [Phase.ABORTING, Phase.REPLACING])
def test_revoked_while_recovering_forgets_the_partition(phase: Phase) -> None:
    state, effects = step(in_phase(phase), ev.Revoked(frozenset({0})))
    assert effects == (ef.Drop(frozenset({0})),)

    answer = ev.Aborted() if phase is Phase.ABORTING else ev.Replaced()
    state, effects = step(state, answer)
    assert (state.phase, effects) == (Phase.READY, ())


# ---- polls ----------------------------------------------------------------------------------


def test_messages_before_the_mark_are_passed_over() -> None:
    state = ready(p0=partition(marks={"d.x": 2}))
    came = arrival("d.x", 0, 1, 2, 3)

    state, effects = step(state, polled(5, came))

    assert effects == (ef.Keep(came, 2),)
    assert state.partitions[0].buffers["d.x"] == buffer(2, 3, opened_at_ms=5)
    assert state.partitions[0].position == 4


@pytest.mark.parametrize(
    ("made_ms", "opened_ms"),
    [(970, 970), (900, 950), (1_200, 1_000), (-1, 1_000)],
    ids=["since the last poll", "before it", "by a clock that is ahead", "without a time"],
)
def test_a_buffers_age_counts_from_when_its_first_message_came(
    made_ms: int, opened_ms: int
) -> None:
    """It lay at the broker while a transaction went on; of a backlog only the last poll counts."""
    state = replace(ready(p0=partition()), now_ms=950)

    state, _ = step(state, polled(1_000, arrival("d.x", 0, first_timestamp_ms=made_ms)))

    assert state.partitions[0].buffers["d.x"].opened_at_ms == opened_ms


def test_messages_of_a_partition_no_longer_owned_are_ignored() -> None:
    state, effects = step(ready(), polled(0, arrival("d.x", 0)))

    assert (state.partitions, effects) == ({}, ())


def test_a_poll_before_the_position_raises() -> None:
    with pytest.raises(AssertionError, match="polled offset 3 is before the position 5"):
        step(ready(p0=partition(5)), ev.Polled(0, (), {0: [3]}))


def test_nothing_begins_before_the_commit_interval_is_over() -> None:
    state = with_limits(limits(max_rows=1, commit_interval_ms=250), p0=partition())

    state, effects = step(state, polled(100, arrival("d.x", 0)))
    assert state.phase is Phase.READY
    state, effects = step(state, ev.Polled(250))
    assert effects == (ef.Begin(frozenset({"d.x"})),)


def test_what_memory_cannot_hold_waits_for_no_commit_interval() -> None:
    chosen = limits(commit_interval_ms=250, max_buffer_bytes=100)
    state = with_limits(chosen, p0=partition())

    state, effects = step(state, polled(100, arrival("d.x", 0, bytes=100)))
    assert [type(effect) for effect in effects] == [ef.Keep]
    state, effects = step(state, polled(101, arrival("d.y", 1, bytes=1)))
    assert effects[1:] == (ef.Begin(frozenset({"d.x"})),)


def test_since_when_every_poll_was_full() -> None:
    state = ready(p0=partition())
    seen = []
    for now_ms, full in ((1, False), (2, True), (3, True), (2, True), (4, False), (5, True)):
        state, _ = step(state, replace(ev.Polled(now_ms), full=full))
        seen.append(state.full_since_ms)

    assert seen == [None, 2, 2, 2, None, 5]


def test_a_fresh_partition_is_recorded_without_any_message() -> None:
    state = ready(p0=partition(fresh=True))

    state, effects = through(state, ev.Polled(0), ev.Begun(), ev.Produced(()))

    assert isinstance(effects[-1], ef.WriteJournal)
    assert [r.n for r in effects[-1].records] == [2]
    state, _ = through(state, ev.JournalWritten({0: 9}), ev.OffsetsSent(), ev.Committed(clean=True))
    assert not state.partitions[0].fresh


def test_an_idle_partition_is_recorded_again_before_retention_deletes_its_record() -> None:
    """A take-over reads the journal's last record, however long ago the last message came."""
    idle, busy = partition(7, recorded_at_ms=1_000), partition(8, 9, buffers={"d.x": buffer(8)})
    chosen = limits(keepalive_ms=60_000)
    state = with_limits(chosen, p0=idle, p1=replace(busy, recorded_at_ms=1_000))

    early, effects = step(state, ev.Polled(60_999))
    assert (early.phase, effects) == (Phase.READY, ())
    state, effects = through(state, ev.Polled(61_000), ev.Begun(), ev.Produced(()))
    assert isinstance(effects[-1], ef.WriteJournal)
    assert [(r.partition, r.floor, r.results) for r in effects[-1].records] == [(0, 7, ())]
    state, _ = through(state, ev.JournalWritten({0: 9}), ev.OffsetsSent(), ev.Committed(clean=True))
    assert state.partitions[0].recorded_at_ms == 61_000


TAKE_OVERS: dict[str, Callable[[RelayState], tuple[RelayState, tuple[ef.Effect, ...]]]] = {
    "rebalances": lambda state: through(
        state, ev.Revoked(frozenset({0})), ev.Assigned(frozenset({0}))
    ),
    "transactions that were aborted": lambda state: through(
        replace(state, phase=Phase.ABORTING), ev.Aborted()
    ),
    "restarts": lambda state: step(
        replace(with_limits(state.limits), now_ms=state.now_ms), ev.Assigned(frozenset({0}))
    ),
}


@pytest.mark.parametrize("again", TAKE_OVERS.values(), ids=TAKE_OVERS.keys())
def test_an_idle_partition_is_recorded_again_however_often_it_is_taken_over(
    again: Callable[[RelayState], tuple[RelayState, tuple[ef.Effect, ...]]],
) -> None:
    """Retention goes by the record's age, which a take-over leaves as it is."""
    state = with_limits(limits(keepalive_ms=60_000), p0=partition())
    written_ms = [0]
    for now_ms in range(20_000, 400_000, 20_000):
        state, effects = again(state)
        assert effects[-1] == ef.ReadTruth(frozenset({0}))
        last = record(marks=(), appended_at_ms=written_ms[-1])
        state, _ = step(state, ev.TruthRead((found(record=last),), now_ms))
        state, effects = step(state, ev.Polled(now_ms + 1))
        if effects:
            assert effects == (ef.Begin(frozenset()),)
            events = ev.Begun(), ev.Produced(()), ev.JournalWritten({0: 9}), ev.OffsetsSent()
            state, _ = through(state, *events, ev.Committed(clean=True))
            written_ms.append(now_ms + 1)
    ages_ms = [later - earlier for earlier, later in pairwise(written_ms)]
    assert len(ages_ms) == 6
    assert all(60_000 <= age_ms <= 80_001 for age_ms in ages_ms), ages_ms


@pytest.mark.parametrize(
    ("age_ms", "due"), [(0, False), (59_999, False), (60_000, True), (-59_999, False)]
)
def test_a_partition_taken_over_is_recorded_at_once_only_if_its_record_is_old(
    age_ms: int, due: bool
) -> None:
    """Else each of hundreds of idle partitions would write one at every rebalance."""
    assert _records_at_take_over(age_ms) == due


@pytest.mark.parametrize("ahead_ms", [60_000, 10**12])
def test_a_record_of_a_time_to_come_is_no_young_record(ahead_ms: int) -> None:
    """One of two clocks is wrong; waiting for that time, a relay whose own is would never write."""
    assert _records_at_take_over(-ahead_ms)


def _records_at_take_over(age_ms: int) -> bool:
    """Whether a relay with one idle partition writes when it has taken that over."""
    now_ms = 10**12
    state, _ = step(with_limits(limits(keepalive_ms=60_000)), ev.Assigned(frozenset({0})))
    last = record(marks=(), appended_at_ms=now_ms - age_ms)
    state, _ = step(state, ev.TruthRead((found(record=last),), now_ms))
    return bool(step(state, ev.Polled(now_ms))[1])


def test_schema_change_seals_only_its_table_and_at_once() -> None:
    chosen = limits(commit_interval_ms=10_000)
    state = with_limits(chosen, p0=partition(0, 2, buffers={"d.x": buffer(0), "d.y": buffer(1)}))

    state, effects = step(state, ev.SchemaChanged(frozenset({"d.y"})))

    assert effects == (ef.Begin(frozenset({"d.y"})),)
    assert state.transaction is not None
    assert [(s.table, s.reason) for s in state.transaction.seals] == [("d.y", SealReason.SCHEMA)]
    assert state.schema_changed == frozenset()


# ---- the transaction ------------------------------------------------------------------------


def test_a_transaction_goes_its_whole_way() -> None:
    """Begin, produce, journal, offsets, commit; then marks, floor and n have moved."""
    state, effects = step(in_phase(Phase.READY), polled(3, arrival("d.x", 0, 1)))
    assert effects[-1] == ef.Begin(frozenset({"d.x"}))
    state, effects = step(state, ev.Begun())
    (produce,) = effects
    assert isinstance(produce, ef.Produce)
    assert produce.seals[0].block_id == "app:d.x:0:0:0"
    state, effects = step(state, ev.Produced((result(produce.seals[0]),)))
    (journal,) = effects
    assert isinstance(journal, ef.WriteJournal)
    written = journal.records[0]
    assert (written.n, written.previous_floor, written.floor, written.position) == (2, 0, 2, 2)
    assert (written.count, written.flush_point) == (2, True)
    state, effects = step(state, ev.JournalWritten({0: 40}))
    assert effects == (ef.SendOffsets({0: CommittedOffset(2, 2, 40)}),)
    state, effects = step(state, ev.OffsetsSent())
    assert effects == (ef.Commit(),)
    state, effects = step(state, ev.Committed(clean=True))

    assert (effects, state.phase, state.transaction) == ((), Phase.READY, None)
    after = state.partitions[0]
    assert (after.n, after.floor, after.position, after.reference) == (2, 2, 2, 2)
    assert (after.buffers, after.marks, after.polled, after.count) == ({}, {}, (), 0)
    assert state.tokens == 99.0


@pytest.mark.parametrize("fencing", Fencing)
def test_nothing_of_a_source_made_anew_is_committed(fencing: Fencing) -> None:
    """What was polled since may be of it, at offsets of the old one: the take-over decides."""
    state = replace(in_phase(Phase.READY), fencing=fencing)
    state, _ = step(state, polled(3, arrival("d.x", 0, 1)))
    assert step(state, ev.Begun(source_topic_id="id"))[0].phase is Phase.PRODUCING
    state, effects = step(state, ev.Begun(source_topic_id="another"))
    assert (state.phase, state.transaction, effects) == (Phase.ABORTING, None, (ef.Abort(),))
    state, effects = step(state, ev.Aborted())
    owned = frozenset({0})
    ask = ef.ReadTruth(owned) if fencing is Fencing.GROUP else ef.Fence(owned)
    assert (state.partitions, effects) == ({}, (ef.Drop(owned), ask))
    anew = found(source_topic_id="another")
    state, (end,) = step(state, ev.TruthRead((anew,), 4))
    assert isinstance(end, ef.Exit)
    assert end.error is not None
    assert "topic id changed from id to another" in end.error.message


def test_a_source_that_is_not_listed_is_asked_for_again() -> None:
    """Nothing is begun, nor lost: it may be on its way, or the consumer hears that it is gone."""
    state = with_limits(limits(max_rows=9), p0=partition(0, 1, buffers={"d.x": buffer(0)}))
    state, begin = step(state, ev.SchemaChanged(frozenset({"d.x"})))
    state, effects = step(state, ev.SourceUnseen())
    assert (state.phase, state.transaction, effects) == (Phase.READY, None, ())
    assert step(state, ev.Polled(1))[1] == begin == (ef.Begin(frozenset({"d.x"})),)

    state, _ = through(state, ev.StopRequested(), ev.SourceUnseen())
    assert state.phase is Phase.STOPPED


def test_a_begun_transaction_says_whose_blocks_of_its_tables_are_inserted_one_by_one() -> None:
    """Each counts for block.max_per_second then; of other tables it says nothing."""
    before = frozenset({"d.x", "d.other"})
    owned = {"p0": partition(), "p1": partition()}
    state = replace(with_limits(limits(max_rows=1), **owned), alone=before)
    state, _ = step(state, polled(0, arrival("d.x", 0), arrival("d.y", 0, p=1)))

    assert step(state, ev.Begun())[0].alone == {"d.other"}
    assert step(state, ev.Begun(frozenset({"d.y"})))[0].alone == {"d.other", "d.y"}
    assert state.alone == before


def test_what_goes_by_table_takes_a_token_by_table() -> None:
    """Two source partitions of one: a token, or two where they are inserted one by one."""
    left = {}
    for alone in (frozenset[str](), frozenset({"d.x"})):
        state = with_limits(limits(max_rows=1), p0=partition(), p1=partition())
        state, _ = step(state, polled(0, arrival("d.x", 0), arrival("d.x", 0, p=1)))
        state, _ = step(state, ev.Begun(alone))
        assert state.transaction is not None
        results = tuple(result(seal) for seal in state.transaction.seals)
        rest = ev.JournalWritten({0: 40, 1: 41}), ev.OffsetsSent(), ev.Committed(clean=True)
        state, _ = through(state, ev.Produced(results), *rest)
        left[alone] = state.tokens

    assert list(left.values()) == [99.0, 98.0]


def test_until_the_commit_is_answered_the_partition_is_as_before() -> None:
    state = in_phase(Phase.COMMITTING)

    assert (state.partitions[0].floor, state.partitions[0].n) == (0, 1)


def test_every_seal_needs_its_result() -> None:
    with pytest.raises(AssertionError, match="exactly one result"):
        step(in_phase(Phase.PRODUCING), ev.Produced(()))


def cut(of: SealResult, messages: int) -> SealResult:
    """The result of a seal of which only the first messages went into a block."""
    at = of.seal.buffer.first_offset + messages
    sizes = messages, of.seal.buffer.messages - messages
    taken, left = split_buffer(of.seal.buffer, messages, at, at, sizes)
    return replace(result(replace(of.seal, buffer=taken)), left=left)


def committed(state: RelayState, messages: int) -> tuple[RelayState, tuple[ef.Effect, ...]]:
    """After a transaction that was just asked for; the first messages of each buffer went in."""
    assert state.transaction is not None
    wholes = map(result, state.transaction.seals)
    results = tuple(
        cut(one, messages) if one.seal.buffer.messages > messages else one for one in wholes
    )
    rest = ev.JournalWritten({0: 40}), ev.OffsetsSent(), ev.Committed(clean=True)
    return through(state, ev.Begun(), ev.Produced(results), *rest)


def test_what_is_left_of_a_buffer_goes_on_at_once_and_is_asked_about_anew() -> None:
    """A poll may bring more than one block takes: with one in between it would only grow."""
    chosen = limits(max_rows=3, commit_interval_ms=10_000)
    state, effects = step(
        with_limits(chosen, p0=partition()), polled(20_000, arrival("d.x", *range(7)))
    )
    for floor in (2, 4):
        assert effects[-1] == ef.Begin(frozenset({"d.x"}))
        state, effects = committed(state, 2)
        assert (state.partitions[0].floor, state.partitions[0].count) == (floor, floor)
    assert (effects[0], state.phase) == (ef.Begin(frozenset({"d.x"})), Phase.BEGINNING)
    assert state.transaction is not None
    assert state.transaction.seals[0].block_id == "app:d.x:0:0:4"
    state, effects = committed(state, 2)
    assert (effects, state.phase) == ((), Phase.READY)
    assert state.partitions[0].buffers["d.x"] == buffer(6, opened_at_ms=20_000)


def test_the_group_is_not_kept_waiting_for_a_poll_by_what_is_left() -> None:
    last = 3 * MAX_CUT
    state = with_limits(limits(max_rows=2), p0=partition())
    state, effects = step(state, polled(0, arrival("d.x", *range(last))))
    blocks = 0
    while effects and state.transaction:
        state, effects = committed(state, 1)
        blocks += 1
    assert (blocks, state.phase) == (MAX_CUT, Phase.READY)
    state, effects = step(state, polled(1, arrival("d.x", last)))
    assert effects[-1] == ef.Begin(frozenset({"d.x"}))


def test_all_of_a_buffer_is_sealed_under_the_old_columns() -> None:
    state = with_limits(limits(), p0=partition(0, 5, buffers={"d.x": buffer(0, 4)}))
    state, effects = step(state, ev.SchemaChanged(frozenset({"d.x"})))
    while effects:
        assert state.transaction is not None
        assert state.transaction.seals[0].reason is SealReason.SCHEMA
        state, effects = committed(state, 2)
    assert state.partitions[0].buffers == {}


def test_a_relay_that_stops_seals_what_is_left_too() -> None:
    state = with_limits(limits(), p0=partition(0, 5, buffers={"d.x": buffer(0, 4)}))
    state, _ = step(state, ev.StopRequested())
    floors = []
    while state.phase is not Phase.STOPPED:
        state, _ = committed(state, 2)
        floors.append(state.partitions[0].floor)
    assert floors == [2, 4, 5]


def test_messages_that_vanish_between_buffer_and_block_are_noticed() -> None:
    state = in_phase(Phase.PRODUCING)
    assert state.transaction is not None
    short = replace(result(state.transaction.seals[0], dead=1), dead_messages=0)

    with pytest.raises(AssertionError, match="are not the 2 of the buffer"):
        step(state, ev.Produced((short,)))


def test_an_unclean_commit_replaces_the_producer_and_reads_the_truth_again() -> None:
    state, effects = step(in_phase(Phase.COMMITTING), ev.Committed(clean=False))
    assert state.phase is Phase.REPLACING
    assert isinstance(effects[0], ef.Replace)

    state, effects = step(state, ev.Replaced())
    assert effects == (ef.Drop(frozenset({0})), ef.ReadTruth(frozenset({0})))
    assert state.phase is Phase.READY
    assert (dict(state.partitions), set(state.pending)) == ({}, {0})


def test_a_clean_commit_goes_on() -> None:
    state, effects = step(in_phase(Phase.COMMITTING), ev.Committed(clean=True))

    assert (state.phase, effects) == (Phase.READY, ())


# ---- what goes wrong ------------------------------------------------------------------------


@pytest.mark.parametrize("phase", IN_ORDER)
def test_a_refused_transaction_is_aborted_and_all_is_read_again(phase: Phase) -> None:
    state, effects = step(in_phase(phase), ev.Failed(ev.Failure.ABORT, "why"))
    assert (state.phase, effects) == (Phase.ABORTING, (ef.Abort(),))

    state, effects = step(state, ev.Aborted())
    assert effects == (ef.Drop(frozenset({0})), ef.ReadTruth(frozenset({0})))
    assert (dict(state.partitions), set(state.pending)) == ({}, {0})


@pytest.mark.parametrize("phase", [*IN_ORDER, Phase.READY, Phase.ABORTING, Phase.REPLACING])
def test_an_unknown_outcome_replaces_the_producer(phase: Phase) -> None:
    state, effects = step(in_phase(phase), ev.Failed(ev.Failure.UNKNOWN, "why"))

    assert (state.phase, state.transaction) == (Phase.REPLACING, None)
    assert effects == (ef.Replace("why"),)


def test_what_was_learned_is_no_failure() -> None:
    """Each time a table or record less is in the way: the relay does not give up."""
    state = in_phase(Phase.PRODUCING)
    for _ in range(3 * MAX_FAILURES):
        state, effects = step(
            replace(state, phase=Phase.PRODUCING), ev.Failed(ev.Failure.LEARNED, "why")
        )
        assert (state.phase, effects) == (Phase.REPLACING, (ef.Replace("why"),))


@pytest.mark.parametrize("phase", [Phase.READY, Phase.ABORTING, Phase.REPLACING])
def test_a_failure_where_nothing_can_be_aborted_replaces_the_producer(phase: Phase) -> None:
    _, effects = step(in_phase(phase), ev.Failed(ev.Failure.ABORT, "why"))

    assert effects == (ef.Replace("why"),)


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (ev.Failure.FENCED, Fenced),
        (ev.Failure.REFUSED, Refused),
        (ev.Failure.CREDENTIALS, WrongCredentials),
    ],
)
@pytest.mark.parametrize("phase", [p for p in Phase if p is not Phase.STOPPED])
def test_fenced_and_refused_stop_from_everywhere(
    phase: Phase, failure: ev.Failure, kind: type[RelayError]
) -> None:
    state, effects = step(in_phase(phase), ev.Failed(failure, "because"))

    assert state.phase is Phase.STOPPED
    (last,) = effects
    assert isinstance(last, ef.Exit)
    assert type(last.error) is kind
    assert "because" in last.error.message


def test_too_many_producers_in_a_row_give_up() -> None:
    state = in_phase(Phase.COMMITTING)
    for _ in range(MAX_FAILURES):
        state, effects = step(state, ev.Failed(ev.Failure.UNKNOWN, "why"))
        assert isinstance(effects[0], ef.Replace)

    state, effects = step(state, ev.Failed(ev.Failure.UNKNOWN, "why"))

    assert state.phase is Phase.STOPPED
    assert isinstance(effects[0], ef.Exit)
    assert effects[0].error is not None
    assert type(effects[0].error) is Unavailable
    assert "coordinators" in effects[0].error.next_step


def test_it_gives_up_on_a_partition_that_takes_no_records_and_says_so() -> None:
    """It sent people to the transaction coordinators, which were in order."""
    why = "flush; no broker takes records for app.journal[0]"
    last = ev.Failed(ev.Failure.UNKNOWN, why, dark=True)
    _, effects = step(in_phase(Phase.JOURNALLING, failures=MAX_FAILURES), last)

    (end,) = effects
    assert isinstance(end, ef.Exit)
    assert end.error is not None
    assert why in end.error.message
    assert end.error.next_step.startswith("start the brokers that have copies")


def test_a_commit_ends_the_row_of_failures() -> None:
    state, _ = step(in_phase(Phase.COMMITTING, failures=4), ev.Committed(clean=True))

    assert state.failures == 0


# ---- the end --------------------------------------------------------------------------------


def test_stop_with_nothing_to_commit_exits_at_once() -> None:
    state, effects = step(ready(p0=partition()), ev.StopRequested())

    assert (state.phase, effects) == (Phase.STOPPED, (ef.Exit(None),))


def test_stop_seals_everything_and_exits_after_the_commit() -> None:
    state = with_limits(
        limits(commit_interval_ms=10_000),
        p0=partition(0, 2, buffers={"d.x": buffer(0), "d.y": buffer(1)}),
    )

    state, effects = step(state, ev.StopRequested())
    assert effects == (ef.Begin(frozenset({"d.x", "d.y"})),)
    assert state.transaction is not None
    assert {s.reason for s in state.transaction.seals} == {SealReason.STOP}
    results = tuple(result(seal) for seal in state.transaction.seals)
    state, effects = through(
        state,
        ev.Begun(),
        ev.Produced(results),
        ev.JournalWritten({0: 1}),
        ev.OffsetsSent(),
        ev.Committed(clean=True),
    )

    assert (state.phase, effects) == (Phase.STOPPED, (ef.Exit(None),))


@pytest.mark.parametrize("phase", IN_ORDER)
def test_stop_in_a_transaction_lets_it_end(phase: Phase) -> None:
    state, effects = step(in_phase(phase), ev.StopRequested())

    assert (state.phase, state.stopping, effects) == (phase, True, ())


@pytest.mark.parametrize(
    ("phase", "answer"), [(Phase.ABORTING, ev.Aborted()), (Phase.REPLACING, ev.Replaced())]
)
def test_a_stopping_relay_does_not_start_again_after_a_failure(
    phase: Phase, answer: ev.Event
) -> None:
    state, effects = through(in_phase(phase), ev.StopRequested(), answer)

    assert (state.phase, effects) == (Phase.STOPPED, (ef.Exit(None),))


@pytest.mark.parametrize("event", [e for e in EVENTS if (Phase.STOPPED, type(e)) in TRANSITIONS])
def test_a_stopped_relay_does_nothing(event: ev.Event) -> None:
    state: RelayState = in_phase(Phase.STOPPED)

    after, effects = step(state, event)

    assert after == state
    assert effects == ()


def test_only_the_last_effect_is_answered() -> None:
    """So a failure never leaves later effects of the same step half done."""
    answered: tuple[Any, ...] = (
        ef.ReadTruth, ef.Begin, ef.Produce, ef.WriteJournal, ef.SendOffsets, ef.Commit,
        ef.Abort, ef.Replace, ef.Exit,
    )  # fmt: skip
    tried = 0
    for phase in Phase:
        for event in EVENTS:
            if (phase, type(event)) in TRANSITIONS and not isinstance(event, ev.Produced):
                offsets = (
                    ev.JournalWritten({0: 1}) if isinstance(event, ev.JournalWritten) else event
                )
                _, effects = step(in_phase(phase), offsets)
                assert not any(isinstance(effect, answered) for effect in effects[:-1])
                tried += 1
    assert tried > 40


def test_a_floor_in_front_of_a_marker_is_recorded_at_a_flush_point_and_then_no_more() -> None:
    """Retention may delete the marker of a quiet partition's last transaction."""
    chosen = limits(flush_point_interval_ms=1_000)
    state = with_limits(chosen, p0=partition(10))
    ends = replace(polled(1), read_to={0: 11, 5: 9})  # 5 is not owned any more

    state, effects = step(state, ends)
    assert (state.phase, effects, state.partitions[0].floor) == (Phase.READY, (), 10)
    state, effects = step(state, replace(polled(1_000), read_to={}))
    assert effects == (ef.Begin(),)
    answers = (ev.Begun(), ev.Produced(()), ev.JournalWritten({0: 4}), ev.OffsetsSent())
    state, _ = through(state, *answers, ev.Committed(clean=True))
    kept = state.partitions[0]
    assert (kept.floor, kept.reference, kept.count) == (11, 11, 0)

    for now_ms in (2_000, 3_000, 9_000):
        state, effects = step(state, replace(polled(now_ms), read_to={0: 11}))
        assert not effects
