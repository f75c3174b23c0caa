"""When what happened last: the facts that relay.program.health judges, and gauges are made of.

Written by the relay's thread, read by those of the HTTP server: each attribute is replaced whole,
and the core's state never changes in place.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from relay.core import events as ev
from relay.core.sealing import BEHIND_FACTOR, is_behind
from relay.core.state import Partition, Phase, RelayState
from relay.core.step import IN_TRANSACTION
from relay.operate.metrics.statistics import Readable, Statistics
from relay.program.health import PartitionHealth, RelayHealth
from relay.program.monotonic import steady_ms


class Vitals:
    """When what happened last in one relay.

    Args:
        now_ms: as the core's, which no setting of the wall clock moves.
        wall_ms: Unix milliseconds, to compare with the times of messages.

    Attributes:
        state: the core's, after the last step; None before the first.
        moved_at: by partition, when its last message came, its last commit went, or its turn to
            be polled came.
        committed_at: the last commit of all; None before the first.
    """

    def __init__(
        self,
        statistics: Statistics,
        clock: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = steady_ms,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._statistics = statistics
        self.clock = clock
        self.now_ms = now_ms
        self.wall_ms = wall_ms
        self.state: RelayState | None = None
        self.beat_at = self.polled_at = clock()
        self.moved_at: dict[int, float] = {}
        self.committed_at: float | None = None
        self.away = ""
        self.fenced = ""
        self._open_since: float | None = None
        self._pending_since: float | None = None
        self._assigned = False
        self._behind_at: float | None = None

    def polled(self) -> None:
        """Note that the loop has come round, so that no server is waited for."""
        self.beat_at = self.polled_at = self.clock()
        self.away = ""

    def waiting(self, why: str) -> None:
        """Note one more try of a server that is away."""
        self.beat_at, self.away = self.clock(), why

    def stepped(self, before: RelayState, event: ev.Event, after: RelayState) -> None:
        """Note that the core has taken a step."""
        now = self.clock()
        self.state = after
        self._note_phase(after, now)
        match event:
            case ev.Polled():
                begun = dict.fromkeys(after.reading - before.reading)
                self._moved({**event.offsets, **begun}, now)
            case ev.TruthRead():
                self._moved({found.partition: found for found in event.found}, now)
            case ev.Committed():
                self.committed_at = now
                if before.transaction is not None:
                    self._moved(before.transaction.after, now)
            case ev.Assigned():
                self._assigned = True
            case ev.Revoked():
                self._assigned = False
            case ev.Failed(ev.Failure.FENCED, why):
                self.fenced = why

    def _note_phase(self, after: RelayState, now: float) -> None:
        """Note since when the relay is behind, takes over, or has a transaction open."""
        if is_behind(after):
            self._behind_at = now
        self._pending_since = (self._pending_since or now) if after.pending else None
        if after.phase not in IN_TRANSACTION or after.phase is Phase.BEGINNING:
            self._open_since = None
        elif self._open_since is None:
            self._open_since = now

    def _moved(self, partitions: Mapping[int, object], now: float) -> None:
        if partitions:
            self.moved_at = {**self.moved_at, **dict.fromkeys(partitions, now)}

    def open_seconds(self) -> float:
        """Return how long a transaction is open; 0 where none is."""
        since = self._open_since
        return 0.0 if since is None else self.clock() - since

    def facts(self) -> RelayHealth:
        """Return the relay's health now."""
        state, readable = self.state, self._statistics.readable()
        partitions = {} if state is None else state.partitions
        return RelayHealth(
            now=self.clock(),
            beat_at=self.beat_at,
            transaction_since=self._open_since,
            fenced=self.fenced,
            away=self.away,
            assigned=self._assigned,
            pending=0 if state is None else len(state.pending),
            pending_since=self._pending_since,
            connected=self._statistics.connected(),
            partitions=[
                self._standing(index, partition, readable.get(index))
                for index, partition in partitions.items()
            ],
        )

    def _standing(
        self, index: int, partition: Partition, readable: Readable | None
    ) -> PartitionHealth:
        since = None if readable is None else readable.waiting_since
        state = self.state
        if state is not None and index not in state.reading:
            since = None  # its turn comes, or what it holds back has to go first
        if since is not None:
            since = max(since, self.moved_at.get(index, since))
        overdue = [
            self._overdue(table, buffer.opened_at_ms)
            for table, buffer in partition.buffers.items()
            if state is None or table not in state.held
        ]
        return PartitionHealth(index, since, max(overdue, default=0.0))

    def _overdue(self, table: str, opened_at_ms: int) -> float:
        """Return how many seconds longer a buffer waits than it may.

        Until the relay was no longer behind it might grow older. What that left is past its age all
        at once, and is sealed as INSERTs are allowed. Where brokers are too slow for what is due,
        commits alone show that it goes on.
        """
        assert self.state is not None
        limits = self.state.limits
        longest = limits.table_max_age_ms.get(table, limits.max_age_ms)
        age = self.now_ms() - opened_at_ms
        late, too_late = (max(0, age - n * longest) / 1000 for n in (1, BEHIND_FACTOR))
        if self.state.most_bytes is not None and self.committed_at is not None:
            return min(late, self.clock() - self.committed_at)
        if self._behind_at is None:
            return late
        return max(too_late, min(late, self.clock() - self._behind_at))
