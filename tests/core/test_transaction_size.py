"""Brokers that are too slow for what is due: it goes in smaller transactions, and all arrives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from relay.core import effects as ef
from relay.core import events as ev
from relay.core.offsets import CommittedOffset
from relay.core.records import JournalEnd, JournalRecord, PartitionTruth
from relay.core.state import Fencing, Phase, RelayState, Seal, SealReason, Transaction
from relay.core.step import MAX_FAILURES, step
from relay.core.transaction_size import LEAST_BYTES, PART, UNPOLLED_MS, split_within
from relay.errors import RelayError
from tests.core.build import (
    arrival,
    buffer,
    found,
    limits,
    partition,
    polled,
    record,
    result,
    through,
    with_limits,
)

MB = 1_000_000
TIMEOUT_MS = 40_000
POLL_MS, POLL_MESSAGES, MESSAGE_BYTES = 40, 40, MB // 10
PARTITIONS, MESSAGES = 4, 1_000
SOURCE_BYTES = PARTITIONS * MESSAGES * MESSAGE_BYTES


class SlowBrokers:
    """A relay with a backlog of one table, and brokers that take so many bytes a second.

    Args:
        bytes_per_second: that they take.
        fencing: of the relay.
        partitions: of the source.
        poll_messages: of a poll, but for the first behind a seek, which fetches begin anew.
        heeds: whether a poll gives no more than the bound.

    Attributes:
        failed: bytes of each transaction that was open for too long.
        held: bytes of all buffers, at most.
        error: with which the relay ended.
    """

    def __init__(
        self,
        bytes_per_second: int,
        fencing: Fencing = Fencing.GROUP,
        *,
        partitions: int = PARTITIONS,
        poll_messages: int = POLL_MESSAGES,
        heeds: bool = True,
    ) -> None:
        owned = {f"p{index}": partition() for index in range(partitions)}
        self._poll_messages, self._heeds, self._sought = poll_messages, heeds, True
        chosen = limits(
            max_bytes=10 * MB,
            max_age_ms=750,
            commit_interval_ms=250,
            max_buffer_bytes=512 * MB,
            transaction_timeout_ms=TIMEOUT_MS,
        )
        self.state = replace(with_limits(chosen, **owned), fencing=fencing)
        self.now_ms = self.held = 0
        self.failed: list[int] = []
        self.error: RelayError | None = None
        self._speed, self._begun_ms = bytes_per_second, 0
        self._at = dict.fromkeys(range(partitions), 0)
        self._written: tuple[JournalRecord, ...] = ()
        self.journal = {
            index: record(partition=index, n=1, floor=0, position=0, marks=(), reference=0, count=0)
            for index in range(partitions)
        }

    def floors(self) -> set[int]:
        return {head.floor for head in self.journal.values()}

    def poll(self) -> None:
        self.now_ms += POLL_MS
        read = sorted(self.state.reading)
        most = POLL_MESSAGES if self._sought else self._poll_messages
        if self._heeds and self.state.most_bytes is not None:
            most = max(1, min(most, self.state.most_bytes // MESSAGE_BYTES))
        self._sought, each = False, max(1, most // max(1, len(read)))
        came = {
            index: range(at, min(at + each, MESSAGES))
            for index in read
            if (at := self._at[index]) < MESSAGES
        }
        self._at |= {index: offsets[-1] + 1 for index, offsets in came.items()}
        arrivals = [
            arrival("d.x", *offsets, p=index, bytes=MESSAGE_BYTES * len(offsets))
            for index, offsets in came.items()
        ]
        event = replace(polled(self.now_ms, *arrivals), full=bool(came))
        self.dispatch(event)
        of = [b.memory for p in self.state.partitions.values() for b in p.buffers.values()]
        self.held = max(self.held, sum(of))

    def dispatch(self, *events: ev.Event) -> None:
        pending = list(events)
        while pending:
            self.state, effects = step(self.state, pending.pop(0))
            pending += [answer for effect in effects for answer in self._answers(effect)]

    def _answers(self, effect: ef.Effect) -> Iterator[ev.Event]:
        match effect:
            case ef.Seek(index, offset):
                self._at[index], self._sought = offset, True
            case ef.Fence(owned):
                yield ev.PredecessorsFenced({index: JournalEnd(1) for index in owned})
            case ef.ReadTruth(owned):
                yield ev.TruthRead(tuple(map(self._truth, sorted(owned))), self.now_ms)
            case ef.Begin():
                self._begun_ms = self.now_ms
                yield ev.Begun()
            case ef.Produce(seals):
                yield self._produced(seals)
            case ef.WriteJournal(records):
                self._written = records
                yield ev.JournalWritten({one.partition: one.n for one in records})
            case ef.SendOffsets():
                yield ev.OffsetsSent()
            case ef.Commit():
                self._commit()
                yield ev.Committed(clean=True, took_ms=self._took_ms())
            case ef.Replace():
                yield ev.Replaced()
            case ef.Exit(error):
                self.error = error

    def _took_ms(self) -> int:
        return self.now_ms - self._begun_ms

    def _produced(self, seals: tuple[Seal, ...]) -> ev.Event:
        size = sum(seal.buffer.bytes for seal in seals)
        self.now_ms += min(1_000 * size // self._speed, TIMEOUT_MS + 1_000)
        if self._took_ms() < TIMEOUT_MS:
            return ev.Produced(tuple(map(result, seals)))
        self.failed.append(size)
        return ev.Failed(ev.Failure.UNKNOWN, "_MSG_TIMED_OUT", took_ms=self._took_ms())

    def _commit(self) -> None:
        for one in self._written:
            before = self.journal[one.partition]
            assert (one.n, one.previous_floor) == (before.n + 1, before.floor)
            self.journal[one.partition] = one

    def _truth(self, index: int) -> PartitionTruth:
        head = self.journal[index]
        committed = CommittedOffset(head.floor, head.n, head.n)
        return found(partition=index, committed=committed, record=head, log_end=MESSAGES)


@pytest.mark.parametrize("fencing", Fencing)
@pytest.mark.parametrize("speed", [MB, MB // 4, MB // 10])
def test_a_backlog_gets_through_brokers_of_any_speed(speed: int, fencing: Fencing) -> None:
    """All of it was due at once, again and again: the relay ended with the fifth failure."""
    slow = SlowBrokers(speed, fencing)
    until_ms = 3 * (TIMEOUT_MS + 1_000) + 1_100 * SOURCE_BYTES // speed
    while slow.floors() != {MESSAGES} and slow.now_ms < until_ms and not slow.error:
        slow.poll()

    assert (slow.floors(), slow.error) == ({MESSAGES}, None)
    assert len(slow.failed) <= 3
    assert slow.held <= 50 * MB  # as much as the first poll found due, and what one more brought


@pytest.mark.parametrize("heeds", [True, False])
def test_one_poll_brings_no_more_than_the_bound(*, heeds: bool) -> None:
    """Negative control: polls of 32 MB into one buffer, which cannot be split, end the relay."""
    slow = SlowBrokers(MB // 2, partitions=1, poll_messages=320, heeds=heeds)
    until_ms = 3 * (TIMEOUT_MS + 1_000) + 1_100 * MESSAGES * MESSAGE_BYTES // (MB // 2)
    while slow.floors() != {MESSAGES} and slow.now_ms < until_ms and not slow.error:
        slow.poll()

    assert (slow.floors() == {MESSAGES}, slow.error is None) == (heeds, heeds)


def test_a_stop_does_not_wait_for_all_that_is_due() -> None:
    """At this speed it would take minutes. What is not in blocks is read again."""
    slow = SlowBrokers(MB // 10)
    while len(slow.failed) < 2 or _held(slow.state) <= 3 * (slow.state.most_bytes or 0):
        slow.poll()
    begun_ms = slow.now_ms
    slow.dispatch(ev.StopRequested())

    assert (slow.state.phase, slow.error) == (Phase.STOPPED, None)
    assert slow.now_ms - begun_ms <= TIMEOUT_MS + 1_000


def test_a_fence_behind_the_timeout_says_how_large_the_transaction_was() -> None:
    """Between clusters the brokers' own end of it looks as if another relay had taken over."""
    fenced = ev.Failed(ev.Failure.FENCED, "why", took_ms=TIMEOUT_MS + 5_000)
    _, (exit_,) = step(producing(60 * MB, fencing=Fencing.PARTITION), fenced)
    assert isinstance(exit_, ef.Exit)
    assert exit_.error is not None
    assert "60,000,000 bytes of rows in 45.0 s of 40" in exit_.error.message


def _held(state: RelayState) -> int:
    return sum(b.bytes for p in state.partitions.values() for b in p.buffers.values())


def test_without_a_failure_nothing_has_a_bound() -> None:
    """However long its commits take."""
    chosen = limits(max_bytes=10, commit_interval_ms=10_000)
    state = with_limits(chosen, p0=partition(), p1=partition(), p2=partition())
    for at in (0, 1):
        came = [arrival("d.x", at, p=p, bytes=90 * MB) for p in (0, 1, 2)]
        state, effects = step(state, polled(20_000 * (at + 1), *came))
        assert effects[-1] == ef.Begin(frozenset({"d.x"}))
        assert state.transaction is not None
        assert [seal.partition for seal in state.transaction.seals] == [0, 1, 2]
        assert state.transaction.then == ()
        state, effects = committed(state, took_ms=5 * TIMEOUT_MS)
        assert (state.phase, state.most_bytes, effects) == (Phase.READY, None, ())


def committed(state: RelayState, took_ms: int) -> tuple[RelayState, tuple[ef.Effect, ...]]:
    """After the transaction that was just asked for."""
    assert state.transaction is not None
    results = ev.Produced(tuple(map(result, state.transaction.seals)))
    journal = ev.JournalWritten(dict.fromkeys(state.transaction.partitions, 1))
    end = ev.Committed(clean=True, took_ms=took_ms)
    return through(state, ev.Begun(), results, journal, ev.OffsetsSent(), end)


def producing(size: int, **changes: Any) -> RelayState:
    """A transaction of so many bytes is open."""
    state = replace(with_limits(limits(max_rows=2), p0=partition()), **changes)
    return through(state, polled(0, arrival("d.x", 0, 1, bytes=size)), ev.Begun())[0]


LATE = ev.Failed(ev.Failure.UNKNOWN, "why", took_ms=TIMEOUT_MS)


@pytest.mark.parametrize(
    ("failed", "size"),
    [
        (replace(LATE, took_ms=TIMEOUT_MS - 1), 60 * MB),
        (replace(LATE, dark=True), 60 * MB),
        (LATE, LEAST_BYTES),
    ],
)
def test_what_failed_of_something_else_sets_no_bound(failed: ev.Failed, size: int) -> None:
    state, effects = step(producing(size), failed)
    assert (state.most_bytes, effects) == (None, (ef.Replace("why"),))


@pytest.mark.parametrize("kind", [ev.Failure.UNKNOWN, ev.Failure.ABORT])
def test_what_took_too_long_sets_a_bound_and_says_so(kind: ev.Failure) -> None:
    """An abort would not count as a failure: the relay would go in circles, and never say why."""
    state, (effect,) = step(producing(60 * MB), replace(LATE, kind=kind))
    assert (state.phase, state.most_bytes) == (Phase.REPLACING, 60 * MB // PART)
    assert isinstance(effect, ef.Replace)
    assert "60,000,000 bytes of rows in 40.0 s of 40" in effect.why


@pytest.mark.parametrize(("most", "after"), [(2 * MB, 2 * MB), (90 * MB, 15 * MB), (MB, MB)])
def test_a_failure_never_raises_the_bound(most: int, after: int) -> None:
    """A single buffer may be larger than it."""
    assert step(producing(60 * MB, most_bytes=most), LATE)[0].most_bytes == after


def test_it_gives_up_on_slow_brokers_and_says_so() -> None:
    """It sent people to the transaction coordinators, which were in order."""
    _, (end,) = step(producing(60 * MB, failures=MAX_FAILURES), LATE)
    assert isinstance(end, ef.Exit)
    assert end.error is not None
    assert "60,000,000 bytes" in end.error.message
    assert "relay_kafka_broker_throttle_seconds" in end.error.next_step
    assert "relay.transaction_timeout_seconds" in end.error.next_step


@pytest.mark.parametrize(
    ("size", "took_ms", "after"),
    [
        (5 * MB, 4_999, 20 * MB),
        (5 * MB, 5_000, 10 * MB),  # twice as much might take more than half the timeout
        (5 * MB - 10, 100, 10 * MB),  # a quota lets some pass at once
        (60 * MB, 4_999, 20 * MB),
    ],
)
def test_quick_commits_raise_the_bound(size: int, took_ms: int, after: int) -> None:
    state = replace(with_limits(limits(max_rows=2), p0=partition()), most_bytes=10 * MB)
    state, _ = step(state, polled(0, arrival("d.x", 0, 1, bytes=size)))
    assert committed(state, took_ms)[0].most_bytes == after


def test_a_bound_that_bounds_nothing_is_forgotten() -> None:
    chosen = limits(max_rows=2, max_buffer_bytes=20 * MB)
    state = replace(with_limits(chosen, p0=partition()), most_bytes=10 * MB)
    state, _ = step(state, polled(0, arrival("d.x", 0, 1, bytes=5 * MB)))
    assert committed(state, 100)[0].most_bytes is None


def test_the_oldest_go_first_and_each_partition_is_recorded() -> None:
    seals = tuple(
        Seal(index, table, f"app:{table}:{index}", SealReason.AGE, held)
        for index, table, held in (
            (0, "d.a", buffer(0, 1, opened_at_ms=5)),
            (0, "d.b", buffer(2, 3, opened_at_ms=1)),
            (1, "d.a", buffer(0, 1, opened_at_ms=3)),
            (1, "d.b", buffer(2, 9, opened_at_ms=9)),
        )
    )
    whole = Transaction(seals, frozenset({0, 1, 2}))
    first, second, alone = split_within(40, (whole,))

    assert (first.seals, set(first.partitions)) == ((seals[1], seals[2]), {0, 1, 2})
    assert (second.seals, set(second.partitions)) == ((seals[0],), {0})
    assert (alone.seals, set(alone.partitions)) == ((seals[3],), {1})
    assert split_within(10**6, (whole,)) == (whole,)
    across = Transaction(seals[:2], frozenset({0})), Transaction(seals[2:], frozenset({1}))
    opened = [[s.buffer.opened_at_ms for s in one.seals] for one in split_within(20, across)]
    assert opened == [[1], [3], [5], [9]]
    bare = Transaction((), frozenset({2}))
    assert split_within(40, (bare,)) == (bare,)


def test_a_poll_comes_in_between_and_reads_nothing_before_all_that_was_due_is_sealed() -> None:
    """The group waits for it, and memory holds no more than it did."""
    owned = {f"p{i}": partition(0, 5, buffers={"d.x": buffer(0, 4)}) for i in range(3)}
    state = replace(with_limits(limits(), **owned), most_bytes=50)
    state, effects = step(state, ev.SchemaChanged(frozenset({"d.x"})))
    assert effects == (ef.Begin(frozenset({"d.x"})),)
    state, effects = committed(state, took_ms=UNPOLLED_MS - 1)
    assert (state.phase, effects) == (Phase.BEGINNING, (ef.Begin(frozenset({"d.x"})),))
    state, effects = committed(state, took_ms=1)
    assert (state.phase, state.transaction, effects) == (Phase.READY, None, (ef.Read(frozenset()),))
    assert state.schema_changed == {"d.x"}

    state, effects = step(state, ev.Polled(UNPOLLED_MS))
    assert effects == (ef.Read(None), ef.Begin(frozenset({"d.x"})))
    assert state.transaction is not None
    assert [(s.partition, s.reason) for s in state.transaction.seals] == [(2, SealReason.SCHEMA)]
    state, effects = committed(state, took_ms=UNPOLLED_MS - 1)
    assert (state.phase, state.schema_changed, effects) == (Phase.READY, frozenset(), ())
