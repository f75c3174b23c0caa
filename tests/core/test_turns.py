"""Which source partitions are polled while the relay is behind, and until when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relay.core import effects as ef
from relay.core import events as ev
from relay.core.sealing import seals_due
from relay.core.state import Phase, RelayState, SealReason, Turn, Turns
from relay.core.step import step
from relay.core.turns import SILENT_MS, width
from tests.core.build import arrival, buffer, in_phase, limits, partition, polled, with_limits

FAR = 10**6
"""An end that no test reaches."""


def behind(partitions: int = 4, **changes: int) -> RelayState:
    """Every poll was full for a second, at 10 000 ms; memory holds two full buffers."""
    chosen = limits(**({"max_age_ms": 1_000, "max_bytes": 100, "max_buffer_bytes": 200} | changes))
    owned = {
        f"p{p}": partition(0, 1, buffers={"d.x": buffer(0, opened_at_ms=10_000)})
        for p in range(partitions)
    }
    return replace(with_limits(chosen, **owned), now_ms=10_000, full_since_ms=9_000)


def turning(*reading: int, waiting: tuple[int, ...] = (), **changes: int) -> RelayState:
    state = behind(4, **changes)
    turns = Turns(dict.fromkeys(reading, Turn(10_000, 10_000)), waiting, at_a_time=2)
    return replace(state, turns=turns)


def poll(state: RelayState, *arrivals: object, ms: int = 1, **ends: int) -> RelayState:
    """After a full poll `ms` later; p0=... are ends, far away unless given.

    A transaction that would begin does not: only who is polled matters here.
    """
    known = {p: ends.get(f"p{p}", FAR) for p in state.partitions}
    event = polled(state.now_ms + ms, *arrivals)  # type: ignore[arg-type]
    state, _ = step(state, replace(event, full=True, ends=known))
    return replace(state, phase=Phase.READY, transaction=None)


def whom(state: RelayState) -> tuple[list[int], list[int]]:
    """Who is polled, and who waits."""
    assert state.turns is not None
    return sorted(state.turns.reading), list(state.turns.waiting)


def test_all_are_polled_until_the_relay_is_behind() -> None:
    state = replace(behind(), full_since_ms=9_002)

    before = poll(state)
    assert before.turns is None
    assert before.reading == {0, 1, 2, 3}
    event = replace(polled(10_002), full=True)
    after, effects = step(before, event)
    assert whom(after) == ([0, 1], [2, 3])
    assert effects == (ef.Read(frozenset({0, 1})),)
    assert after.reading == {0, 1}
    assert step(before, replace(event, full=False))[0].turns is None


@pytest.mark.parametrize(
    ("partitions", "changes", "few"),
    [
        (4, {}, 2),
        (3, {}, None),  # of three, two at a time: hardly fewer
        (3, {"max_buffer_bytes": 199}, 1),
        (4, {"max_buffer_bytes": 300}, None),
        (6, {"max_buffer_bytes": 300}, 3),
        (2, {"max_buffer_bytes": 1}, 1),
        (1, {"max_buffer_bytes": 1}, None),
        (4, {"max_reread": 9}, 2),  # no partition ever holds more than 9 messages of 10 bytes
        (4, {"max_reread": 5}, None),
    ],
)
def test_as_many_at_a_time_as_may_fill_their_buffers(
    partitions: int, changes: dict[str, int], few: int | None
) -> None:
    turns = poll(behind(partitions, **changes)).turns

    assert (None if turns is None else len(turns.reading)) == few


def test_a_partition_fills_one_buffer_for_each_of_its_tables() -> None:
    state = behind(max_buffer_bytes=1_000)

    assert width(state) == 10
    tables = {f"d.{n}": buffer(0) for n in range(5)}
    assert width(replace(state, partitions={0: partition(0, 1, buffers=tables)})) == 2
    assert width(replace(state, partitions={0: partition()})) == 1_000
    keyed = {0: partition(0, 1, buffers={"d.x": buffer(0, beside=30)})}
    assert width(replace(state, partitions=keyed)) == 2, "with keys three times as large as rows"


def test_who_has_nothing_left_takes_no_turns() -> None:
    """It is polled all the time; a marker at the end is no message."""
    state = poll(behind(7), p0=1, p1=2, p2=3, p6=1)

    assert whom(state) == ([2, 3], [4, 5])
    assert state.turns is not None
    assert set(state.turns.drained) == {0, 1, 6}
    assert state.reading == {0, 1, 2, 3, 6}
    assert poll(behind(7), p0=1, p1=1, p2=1, p3=1).turns is None, "hardly more than two are left"


def test_a_turn_ends_when_it_filled_its_share_of_the_memory_four_times() -> None:
    """The others come before it has another."""
    state = turning(0, 1, waiting=(2, 3))

    state = poll(state, arrival("d.x", 1, p=0, bytes=399), arrival("d.x", 1, 2, p=1, bytes=399))
    assert whom(state) == ([0, 1], [2, 3])
    state = poll(state, arrival("d.x", 2, p=0, bytes=1))
    assert whom(state) == ([1, 2], [3, 0])
    assert state.turns is not None
    assert state.turns.reading[2] == Turn(10_002, 10_002)


def test_a_turn_ends_when_its_first_buffers_are_sealed_by_age() -> None:
    state = turning(0, 1, waiting=(2, 3))
    for _ in range(10):  # one message in each second: never silent
        at = state.partitions[0].position
        came = [arrival("d.x", at, p=p, bytes=1) for p in (0, 1)]
        state = poll(state, *came, ms=999)
        assert whom(state) == ([0, 1], [2, 3])

    at = state.partitions[0].position
    came = [arrival("d.x", at, p=p, bytes=1) for p in (0, 1)]
    assert whom(poll(state, *came, ms=10)) == ([2, 3], [0, 1])


def test_a_turn_ends_where_there_is_no_more() -> None:
    """Then the partition is polled besides, for what comes anew."""
    state = turning(0, 1, waiting=(2, 3))

    assert whom(poll(state, p0=3)) == ([0, 1], [2, 3])
    state = poll(state, arrival("d.x", 1, p=0), p0=3)
    assert whom(state) == ([1, 2], [3])
    assert state.reading == {0, 1, 2}


def test_a_turn_ends_in_silence_whatever_the_end_says() -> None:
    """An open transaction, or markers alone, may be all that lies before the end."""
    state = turning(0, 1, waiting=(2, 3))

    state = poll(state, arrival("d.x", 1, p=1), ms=SILENT_MS - 1)
    assert whom(state) == ([0, 1], [2, 3])
    state = poll(state)
    assert whom(state) == ([1, 2], [3])
    assert state.reading == {0, 1, 2}


def test_before_anything_came_time_ends_no_turn() -> None:
    """A transaction may have taken all of it."""
    state = turning(0, 1, waiting=(2, 3), max_age_ms=1)

    assert whom(poll(state, ms=11)) == ([0, 1], [2, 3])
    assert whom(poll(state, arrival("d.x", 1), ms=11)) == ([1, 2], [3, 0])


def test_no_more_have_their_turn_where_all_buffers_were_sealed() -> None:
    """They do not show what will fill them; where more tables came, fewer have it."""
    state = turning(0, 1, waiting=(2, 3))

    empty = {p: partition(0, 1) for p in range(4)}
    assert whom(poll(replace(state, partitions=empty))) == ([0, 1], [2, 3])
    tables = {f"d.{n}": buffer(0, opened_at_ms=10_000) for n in range(2)}
    state = replace(state, partitions={**state.partitions, 3: partition(0, 1, buffers=tables)})
    assert whom(poll(state, p0=1)) == ([1], [2, 3])


def test_an_unknown_end_is_no_end() -> None:
    state = turning(0, waiting=(1,))

    state, _ = step(state, ev.Polled(10_001, full=True))
    assert whom(state)[0] == [0, 1]


def test_who_was_drained_waits_again_once_a_turns_share_came() -> None:
    """Unless it has nothing left in between."""
    state = turning(0, 1, waiting=(2,))
    assert state.turns is not None
    state = replace(state, turns=replace(state.turns, drained={3: 60}))

    state = poll(state, arrival("d.x", 1, p=3, bytes=39))
    assert state.turns is not None
    assert state.turns.drained == {3: 99}
    again = poll(state, arrival("d.x", 2, p=3, bytes=1))
    assert whom(again) == ([0, 1], [2, 3])
    assert again.reading == {0, 1}
    caught_up = poll(state, arrival("d.x", 2, p=3, bytes=1), p3=3)
    assert caught_up.turns is not None
    assert caught_up.turns.drained == {3: 0}


def test_one_with_a_backlog_alone_takes_turn_after_turn() -> None:
    """Nobody is paused and resumed for that."""
    state = turning(0)
    assert state.turns is not None
    state = replace(state, turns=replace(state.turns, drained={1: 0, 2: 0, 3: 0}))

    event = replace(polled(10_001, arrival("d.x", 1, bytes=400)), full=True)
    state, effects = step(state, event)
    assert whom(state) == ([0], [])
    assert not any(isinstance(effect, ef.Read) for effect in effects)


def test_turns_end_when_nobody_has_a_backlog() -> None:
    """Then all are polled, and the relay is not behind until polls are full again."""
    state = turning(3)
    assert state.turns is not None
    state = replace(state, turns=replace(state.turns, drained={0: 0, 1: 5, 2: 0}))

    state, effects = step(state, replace(polled(10_001), full=True, ends={3: 1}))
    assert state.turns is None
    assert effects == (ef.Read(None),)
    assert state.full_since_ms is None


def test_polls_that_are_not_full_end_nothing_while_partitions_take_turns() -> None:
    """What the next partition holds may still be on its way; its buffers may still grow old."""
    state = turning(0, 1, waiting=(2, 3))

    state, effects = step(state, replace(polled(12_000, arrival("d.x", 1), arrival("d.x", 1, p=1))))
    assert (whom(state), effects[2:]) == (([0, 1], [2, 3]), ())
    assert state.full_since_ms is None


def test_memory_is_freed_by_those_that_are_not_polled() -> None:
    state = turning(0, waiting=(2, 3), max_buffer_bytes=200)
    sizes = {0: 90, 1: 10, 2: 30, 3: 80}
    held = {p: {"d.x": buffer(0, bytes=n, opened_at_ms=10_000)} for p, n in sizes.items()}
    owned = {p: partition(0, 1, buffers=buffers) for p, buffers in held.items()}
    state = replace(state, partitions=owned)

    def sealed(most: int) -> list[tuple[int, SealReason]]:
        chosen = replace(state.limits, max_buffer_bytes=most)
        return [(s.partition, s.reason) for s in seals_due(replace(state, limits=chosen))]

    assert sealed(210) == []
    assert sealed(209) == [(3, SealReason.MEMORY)]
    assert sealed(129) == [(2, SealReason.MEMORY), (3, SealReason.MEMORY)]
    assert [index for index, _ in sealed(103)] == [1, 2, 3]
    assert [index for index, _ in sealed(89)] == [0, 1, 2, 3]


def test_a_rebalance_ends_all_turns() -> None:
    state = turning(0, waiting=(1, 2, 3))

    gone, effects = step(state, ev.Revoked(frozenset({1})))
    assert gone.turns is None
    assert effects == (ef.Drop(frozenset({1})), ef.Read(None))
    assert step(state, ev.Assigned(frozenset({7})))[0].turns is None


def test_a_failed_transaction_ends_all_turns() -> None:
    """All partitions are taken over anew, and polled from their floors."""
    state = replace(in_phase(Phase.ABORTING), turns=Turns({0: Turn(0, 0)}, (1,)))

    state, effects = step(state, ev.Aborted())
    assert state.turns is None
    everyone = frozenset({0})
    assert effects == (ef.Drop(everyone), ef.Read(None), ef.ReadTruth(everyone))
