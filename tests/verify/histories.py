"""Clean journals, made by the relay's real core: random polls, restarts and flush points.

Receives a seed, gives what the journal of one source partition holds: (offset, Commit), with
the holes that transaction markers leave.
"""

from __future__ import annotations

import random

from relay.blocks import journal
from relay.core import effects as ef
from relay.core import events as ev
from relay.core.offsets import CommittedOffset
from relay.core.records import Arrival, JournalRecord, PartitionTruth, SealedBlock, SealResult
from relay.core.state import Phase, RelayState, Seal, SealingLimits
from relay.core.step import step
from relay.records_pb2 import Commit

APP, SOURCE, TOPIC_ID = "app", "source", "id"
TABLES = ("d.a", "d.b", "d.c", "d.d", "")
AUTHOR = journal.Author(APP, SOURCE, "a")

History = list[tuple[int, Commit]]


def limits(rng: random.Random) -> SealingLimits:
    """Small, so that blocks are sealed for every reason."""
    return SealingLimits(
        app=APP,
        max_bytes=rng.choice((500, 10_000)),
        max_rows=rng.choice((4, 12, 100)),
        max_age_ms=rng.choice((50, 300)),
        table_max_age_ms={"d.d": 5_000},
        max_per_second=1_000.0,
        commit_interval_ms=rng.choice((0, 20)),
        max_buffer_bytes=rng.choice((2_000, 100_000)),
        max_reread=rng.choice((30, 200)),
        flush_point_interval_ms=rng.choice((500, 3_000)),
        keepalive_ms=rng.choice((300, 60_000)),
    )


class Writer:
    """One relay over one source partition; `journal` is what it made visible."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._limits = limits(self._rng)
        self._now = 0
        self._end = 0
        self._source: list[tuple[int, str]] = []
        self._next_chunk: dict[str, int] = {}
        self._next_record = 0
        self._committed: CommittedOffset | None = None
        self._records: dict[int, JournalRecord] = {}
        self._state = RelayState(limits=self._limits)
        self.journal: History = []
        self.messages: list[tuple[int, str]] = []
        """Offset and table of every source message there ever was."""

    def run(self, commits: int) -> History:
        """Until the journal holds so many records."""
        self._restart()
        while len(self.journal) < commits:
            if self._rng.random() < 0.01:
                self._restart()
            self._poll()
        return self.journal

    def _restart(self) -> None:
        """A relay dies and another reads the committed truth: buffers are read again."""
        self._state = RelayState(limits=self._limits)
        self._dispatch(ev.Assigned(frozenset({0})))

    def _poll(self) -> None:
        self._now += self._rng.choice((1, 5, 40))
        for _ in range(self._rng.randrange(6)):
            if self._rng.random() < 0.1:
                self._end += self._rng.randrange(1, 4)  # markers and aborted messages
            weights = (8, 4, 2, 1, 1)
            self._source.append((self._end, self._rng.choices(TABLES, weights)[0]))
            self.messages.append(self._source[-1])
            self._end += 1
        position = self._state.partitions[0].position
        new = [(offset, table) for offset, table in self._source if offset >= position]
        full = len(new) > 50 and self._rng.random() < 0.5
        if full:
            new = new[:20]
        arrivals = []
        for table in dict.fromkeys(table for _, table in new):
            offsets = [offset for offset, of in new if of == table]
            size = 3 * len(offsets)
            arrivals.append(Arrival(0, table, offsets, size, 20 * size, self._now))
        polled = {0: [offset for offset, _ in new]} if new else {}
        self._dispatch(ev.Polled(self._now, tuple(arrivals), polled, full))
        floor = 0 if self._committed is None else self._committed.floor
        self._source = [(o, t) for o, t in self._source if o >= floor]

    def _dispatch(self, event: ev.Event) -> None:
        pending: list[ev.Event] = [event]
        while pending:
            self._state, effects = step(self._state, pending.pop(0))
            assert self._state.phase is not Phase.STOPPED, effects
            pending += [answer for e in effects if (answer := self._perform(e)) is not None]

    def _perform(self, effect: ef.Effect) -> ev.Event | None:
        match effect:
            case ef.ReadTruth():
                return ev.TruthRead((self._truth(),), self._now)
            case ef.Begin():
                return ev.Begun()
            case ef.Produce(seals):
                return ev.Produced(tuple(self._result(seal) for seal in seals))
            case ef.WriteJournal((record,)):
                self._records[self._next_record] = record
                commit = Commit.FromString(journal.encode(record, AUTHOR, self._now))
                self.journal.append((self._next_record, commit))
                return ev.JournalWritten({0: self._next_record})
            case ef.SendOffsets(offsets):
                self._committed = offsets[0]
                return ev.OffsetsSent()
            case ef.Commit():
                self._records = {self._next_record: self._records[self._next_record]}
                self._next_record += self._rng.choice((2, 2, 4))  # markers; an aborted record
                return ev.Committed(True)
            case _:
                return None

    def _truth(self) -> PartitionTruth:
        at = None if self._committed is None else self._committed.journal_offset
        record = None if at is None else self._records[at]
        return PartitionTruth(0, self._committed, record, 0, TOPIC_ID, 0, self._end, 0)

    def _result(self, seal: Seal) -> SealResult:
        messages = seal.buffer.messages
        dead = messages if not seal.table else self._rng.choice((0, 0, 0, min(1, messages)))
        if messages == dead:
            return SealResult(seal, None, dead, "bad")
        topic = f"{APP}.blocks.{seal.table}"
        first = self._next_chunk.get(topic, 0)
        chunks = self._rng.randrange(1, 4)
        self._next_chunk[topic] = first + chunks + 1
        good = messages - dead
        block = SealedBlock(topic, first, first + chunks, chunks, good, 3 * good, 60 * good, 7, 1)
        return SealResult(seal, block, dead, "bad" if dead else "")


def clean(seed: int, commits: int) -> History:
    """A clean journal of at least `commits` records."""
    return Writer(seed).run(commits)
