"""Which source partitions are polled: all, or a few at a time while the relay is behind.

Receives the state and what a poll gave, gives turns. A block costs about the same whatever is in
it, and memory holds so much and no more: shared by the buffers of all partitions it makes many
small blocks, given to a few partitions at a time large ones. Each partition has one turn in a
round, so none waits for ever, and which is read when decides nothing about what its blocks hold
together: a partition is still read in order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from relay.core.sealing import BEHIND_FACTOR, behind
from relay.core.state import RelayState, Turn, Turns

if TYPE_CHECKING:
    from relay.core.events import Polled

WORTH = 2
"""Turns pay where at most one in so many partitions is read at a time: what was fetched of a
partition and not yet polled is thrown away with its turn."""
SILENT_MS = 1_000
"""A turn is over if nothing came for so long, whatever the last known end says: what is left may
be an open transaction's, or nothing but markers."""


def take_turns(state: RelayState, event: Polled) -> RelayState:
    """The state, which holds the poll already, with the turns after it."""
    if state.turns is None:
        return replace(state, turns=_round(state)) if behind(state) else state
    reading: dict[int, Turn] = {}
    more = state.turns.more
    for index, turn in state.turns.reading.items():
        heard = _heard(state, index, turn, event)
        drained = _drained(state, index, heard, event)
        if not drained and not _used_up(state, heard):
            reading[index] = heard
        more = more or (index not in reading and not drained)
    waiting = list(state.turns.waiting)
    while waiting and len(reading) < width(state):
        reading[waiting.pop(0)] = Turn(state.now_ms, state.now_ms)
    if reading:
        return replace(state, turns=Turns(reading, tuple(waiting), more=more))
    if more:
        return replace(state, turns=_round(state))
    return replace(state, turns=None, full_since_ms=None)


def width(state: RelayState) -> int:
    """How many partitions may fill their buffers to the brim at the same time; at least one.

    A partition holds no more than a full buffer for each table, nor than may be read again.
    """
    buffers = [b for p in state.partitions.values() for b in p.buffers.values()]
    tables = max((len(p.buffers) for p in state.partitions.values()), default=0)
    limits = state.limits
    messages = max(1, sum(b.messages for b in buffers))
    again = limits.max_reread * sum(b.bytes for b in buffers) // messages
    return max(1, limits.max_buffer_bytes // max(1, min(tables * limits.max_bytes, again)))


def _round(state: RelayState) -> Turns | None:
    """A turn for each partition; None where that does not pay."""
    partitions, few = sorted(state.partitions), width(state)
    if WORTH * few > len(partitions):
        return None
    begun = Turn(state.now_ms, state.now_ms)
    return Turns(dict.fromkeys(partitions[:few], begun), tuple(partitions[few:]))


def _heard(state: RelayState, index: int, turn: Turn, event: Polled) -> Turn:
    if index not in event.offsets:
        return turn
    size = sum(arrival.bytes for arrival in event.arrivals if arrival.partition == index)
    return replace(turn, heard_ms=state.now_ms, bytes=turn.bytes + size)


def _drained(state: RelayState, index: int, turn: Turn, event: Polled) -> bool:
    """Whether there is nothing left to poll; a transaction's marker at the end is no message."""
    end = event.ends.get(index)
    at_end = end is not None and state.partitions[index].position >= end - 1
    return at_end or state.now_ms - turn.heard_ms >= SILENT_MS


def _used_up(state: RelayState, turn: Turn) -> bool:
    """After its share of the memory, or the age at which its first buffers are sealed anyway."""
    share = state.limits.max_buffer_bytes // width(state)
    most_ms = BEHIND_FACTOR * state.limits.max_age_ms
    return turn.bytes >= share or state.now_ms - turn.begun_ms >= most_ms
