"""Which source partitions are polled: all, or a few at a time while the relay is behind.

Receives the state and what a poll gave, gives turns. A block costs about the same whatever is in
it, and memory holds so much and no more: shared by the buffers of all partitions it makes many
small blocks, given to a few partitions at a time large ones. So partitions with a backlog take
turns, one after the other, and none waits for ever; those without are polled all the time, for
what they bring is little and new. Which is polled when decides nothing about what blocks hold
together: a partition is still read in order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from relay.core.events import Polled
from relay.core.sealing import BEHIND_FACTOR, is_behind
from relay.core.state import RelayState, Turn, Turns

WORTH = 2
"""Turns pay where at most one in so many partitions is read at a time: what was fetched of a
partition and not yet polled is thrown away with its turn."""
FILLS = 4
"""A turn brings so many times its share of the memory. While it lasts the largest buffers make room
for what comes, and those that stay grow to twice the mean; with its end all that it left is sealed
for the next one, large or small. With turns of one share 200 tables had a fifth more blocks."""
SILENT_MS = 1_000
"""Who gave nothing for so long has nothing left, whatever the last known end says: what is there
may be an open transaction's, or nothing but markers."""


def take_turns(state: RelayState, event: Polled) -> Turns | None:
    """Return the turns after a poll that the state holds already; None: all are to be polled."""
    if state.turns is None:
        return _first(state, event) if is_behind(state) else None
    came: Counter[int] = Counter()
    for arrival in event.arrivals:
        came[arrival.partition] += arrival.memory
    # Never more than at first: buffers that were just sealed do not show what will fill them.
    at_a_time = min(state.turns.at_a_time, width(state))
    share = state.limits.max_buffer_bytes // at_a_time
    reading: dict[int, Turn] = {}
    waiting, drained = _drained(state.turns, state, event, came, share)
    for index, turn in state.turns.reading.items():
        updated = turn
        if index in event.offsets:
            updated = replace(turn, heard_ms=state.now_ms, bytes=turn.bytes + came[index])
        if _at_end(state, index, event) or state.now_ms - updated.heard_ms >= SILENT_MS:
            drained[index] = 0
        elif _used_up(state, updated, FILLS * share):
            waiting.append(index)
        else:
            reading[index] = updated
    while waiting and len(reading) < at_a_time:
        reading[waiting.pop(0)] = Turn(state.now_ms, state.now_ms)
    return Turns(reading, tuple(waiting), drained, at_a_time) if reading else None


def width(state: RelayState) -> int:
    """Return how many partitions may fill their buffers to the brim at the same time; at least one.

    A partition holds no more than a full buffer for each table, nor than may be read again.
    """
    buffers = [b for p in state.partitions.values() for b in p.buffers.values()]
    tables = max((len(p.buffers) for p in state.partitions.values()), default=0)
    limits = state.limits
    held = sum(b.memory for b in buffers)
    again = limits.max_reread * held // max(1, sum(b.messages for b in buffers))
    full = tables * limits.max_bytes * held // max(1, sum(b.bytes for b in buffers))
    return max(1, limits.max_buffer_bytes // max(1, min(full, again)))


def _first(state: RelayState, event: Polled) -> Turns | None:
    """The first turns; None where they do not pay."""
    drained = {index: 0 for index in state.partitions if _at_end(state, index, event)}
    backlog, at_a_time = sorted(state.partitions.keys() - drained), width(state)
    if WORTH * at_a_time > len(backlog):
        return None
    turn = Turn(state.now_ms, state.now_ms)
    reading = dict.fromkeys(backlog[:at_a_time], turn)
    return Turns(reading, tuple(backlog[at_a_time:]), drained, at_a_time)


def _drained(
    turns: Turns, state: RelayState, event: Polled, came: Counter[int], share: int
) -> tuple[list[int], dict[int, int]]:
    """Who waits, and who still has nothing left: no more than a turn's share came meanwhile."""
    waiting, drained = list(turns.waiting), {}
    for index, size in turns.drained.items():
        since = 0 if _at_end(state, index, event) else size + came[index]
        if since < share:
            drained[index] = since
        else:
            waiting.append(index)
    return waiting, drained


def _at_end(state: RelayState, index: int, event: Polled) -> bool:
    """Whether nothing is left to poll; a transaction's marker at the end is no message.

    The end is as old as the last fetch: a partition that was not polled since may have more, and
    shows it once it is polled.
    """
    end = event.ends.get(index)
    return end is not None and state.partitions[index].position >= end - 1


def _used_up(state: RelayState, turn: Turn, share: int) -> bool:
    """Whether it had its share of the memory, or its first buffers are old enough to be sealed."""
    late = state.now_ms - turn.begun_ms >= BEHIND_FACTOR * state.limits.max_age_ms
    return turn.bytes >= share or (late and turn.bytes > 0)
