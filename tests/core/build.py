"""Short ways to states, events and results for the tests of relay.core."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from relay.core import events as ev
from relay.core.effects import Effect
from relay.core.offsets import CommittedOffset
from relay.core.records import (
    Arrival,
    JournalRecord,
    PartitionTruth,
    SealedBlock,
    SealResult,
    TableMark,
)
from relay.core.state import Buffer, Partition, Phase, RelayState, Seal, SealingLimits
from relay.core.step import step

NEVER = 10**9


def limits(**changes: Any) -> SealingLimits:
    values: dict[str, Any] = {
        "app": "app",
        "max_bytes": NEVER,
        "max_rows": NEVER,
        "max_age_ms": NEVER,
        "table_max_age_ms": {},
        "max_per_second": 100.0,
        "commit_interval_ms": 0,
        "max_buffer_bytes": NEVER,
        "max_reread": NEVER,
        "flush_point_interval_ms": NEVER,
    }
    return SealingLimits(**(values | changes))


def buffer(first: int, last: int | None = None, **changes: Any) -> Buffer:
    """Messages first..last, one row and 10 bytes each."""
    end = first + 1 if last is None else last + 1
    made = Buffer(first, end, end - first, end - first, 10 * (end - first), 0, 0)
    return replace(made, **changes)


def partition(floor: int = 0, position: int | None = None, **changes: Any) -> Partition:
    at = floor if position is None else position
    polled = (tuple(range(floor, at)),) if at > floor else ()
    made = Partition(0, 1, floor, at, "id", floor, 0, 0, polled=polled)
    return replace(made, **changes)


def ready(**partitions: Partition) -> RelayState:
    """A state in READY; p0=..., p1=... are its partitions."""
    return with_limits(limits(), **partitions)


def with_limits(chosen: SealingLimits, **partitions: Partition) -> RelayState:
    owned = {int(name[1:]): value for name, value in partitions.items()}
    return RelayState(chosen, partitions=owned, tokens=100.0)


def arrival(table: str, *offsets: int, p: int = 0, **changes: Any) -> Arrival:
    return replace(Arrival(p, table, offsets, len(offsets), 10 * len(offsets)), **changes)


def polled(now_ms: int, *arrivals: Arrival) -> ev.Polled:
    offsets: dict[int, list[int]] = {}
    for item in arrivals:
        offsets.setdefault(item.partition, []).extend(item.offsets)
    return ev.Polled(now_ms, arrivals, {p: sorted(places) for p, places in offsets.items()})


def result(seal: Seal, dead: int = 0) -> SealResult:
    good = seal.buffer.messages - dead
    block = SealedBlock("topic", 0, 1, 1, good, good, 10 * good, 0, 1) if good else None
    return SealResult(seal, block, dead, "bad" if dead else "")


def record(**changes: Any) -> JournalRecord:
    made = JournalRecord(
        0, "id", 0, 3, 5, 10, 12, (TableMark("d.x", 12),), (), 5, 4, flush_point=False
    )
    return replace(made, **changes)


def found(**changes: Any) -> PartitionTruth:
    """A partition committed at floor 10, n=3; everything agrees."""
    made = PartitionTruth(0, CommittedOffset(10, 3, 7), record(), 0, "id", 0, 20, None)
    return replace(made, **changes)


def through(state: RelayState, *events: ev.Event) -> tuple[RelayState, tuple[Effect, ...]]:
    """The state after the events, and the effects of the last one."""
    effects: tuple[Effect, ...] = ()
    for event in events:
        state, effects = step(state, event)
    return state, effects


def in_phase(phase: Phase, **changes: Any) -> RelayState:
    """A relay on its way through the transaction that seals d.x of partition 0, at `phase`."""
    state = replace(with_limits(limits(max_rows=2), p0=partition()), **changes)
    if phase is Phase.READY:
        return state
    state, _ = step(state, polled(0, arrival("d.x", 0, 1)))
    if phase is Phase.STOPPED:
        return through(state, ev.Failed(ev.Failure.FENCED, "why"))[0]
    if phase is Phase.ABORTING:
        return through(state, ev.Failed(ev.Failure.ABORT, "why"))[0]
    if phase is Phase.REPLACING:
        return through(state, ev.Failed(ev.Failure.UNKNOWN, "why"))[0]
    assert state.transaction is not None
    answers = (
        ev.Begun(),
        ev.Produced(tuple(result(seal) for seal in state.transaction.seals)),
        ev.JournalWritten({0: 40}),
        ev.OffsetsSent(),
    )
    for answer in answers:
        if state.phase is phase:
            break
        state, _ = step(state, answer)
    assert state.phase is phase
    return state
