"""One relay process of the model: performs the effects of relay.core.step, one at a time.

Receives its turn from the scheduler, calls the in-memory Kafka, feeds the answer to `step`.
It stands where relay.process.loop and the adapters stand in production and keeps their rules:
group metadata at begin; an abort that was not clean counts as unknown; the journal's stable
end is asked before the committed offset.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from relay.core import effects as ef
from relay.core import events as ev
from relay.core.records import Arrival, JournalEnd
from relay.core.state import Fencing, RelayState
from relay.core.step import IN_TRANSACTION, step
from relay.errors import RelayError
from tests.model.copying import shallow
from tests.model.kafka import (
    AbortableError,
    FencedError,
    GroupMetadata,
    Kafka,
    NotNowError,
    UnusableError,
)
from tests.model.producer import Producer, failure
from tests.model.records import JOURNAL, SOURCE
from tests.model.work import SPARSE, form, read_heads, read_truth, stable_ends

POLL_MESSAGES = 2
KNOWN_TABLES = ("y", "z")
"""Whose rows' size as columns is known; of others a seal may find more than goes into a block."""


@dataclass(frozen=True, slots=True)
class Guards:
    """Rules of the core and the adapters, each can be taken away by a negative control."""

    epoch_bump_after_unknown: bool = True
    abort_on_revoke: bool = True
    metadata_at_begin: bool = True
    unclean_abort_is_unknown: bool = True
    id_per_partition: bool = True
    fence_before_truth: bool = True
    paused_is_read_again: bool = True
    end_comes_last: bool = True


FAULTS: dict[type[Any], tuple[str, ...]] = {
    ef.Fence: ("retried",),
    ef.ReadTruth: ("lost",),
    ef.Begin: ("refused", "undecided"),
    ef.Produce: ("refused", "lost"),
    ef.WriteJournal: ("refused", "lost"),
    ef.SendOffsets: ("refused", "retried"),
    ef.Commit: ("lost", "unsent", "retried"),
    ef.ShowOffsets: ("unsent",),
    ef.Abort: ("lost", "unsent", "retried"),
    ef.Replace: ("lost",),
}
"""What can go wrong with an effect.

refused: the broker asks for an abort. lost: it was done, its answer never came, a copy is
still under way. unsent: it was not done, and is still under way. retried: it was done,
the client asked again by itself and says success; the copy is still under way. undecided:
ClickHouse is away, and nobody knows one of the tables until some time has gone by.
"""

ANSWERED = (ef.Abort, ef.Replace, ef.Exit)


def _without_doubt(event: ev.Event) -> ev.Event:
    """The event as a relay would take it that knows no doubtful outcome."""
    if isinstance(event, ev.Committed):
        return replace(event, clean=True)
    if isinstance(event, ev.Failed) and event.kind is ev.Failure.UNKNOWN:
        return replace(event, kind=ev.Failure.ABORT)
    return event


@dataclass(slots=True)
class Member:
    """A process and its clients. `seen` is the generation that the application knows of,
    `generation` the one that the client's background thread knows of."""

    name: str
    state: RelayState
    producer: Producer
    guards: Guards = Guards()
    process: int = -1
    todo: tuple[ef.Effect, ...] = ()
    stable_ends: dict[int, int] | None = None
    producers: dict[int, Producer] = field(default_factory=dict)
    held: dict[tuple[int, str], tuple[int, ...]] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=dict)
    owned: frozenset[int] = frozenset()
    reading: frozenset[int] | None = None
    seen: int = -1
    generation: int = -1
    ended: bool = False
    error: RelayError | None = None
    _key: int | None = None

    def clone(self) -> Member:
        producers = {p: one.clone() for p, one in self.producers.items()}
        at = next((p for p, one in self.producers.items() if one is self.producer), None)
        new = shallow(self)
        new.producer = self.producer.clone() if at is None else producers[at]
        new.producers = producers
        new.held, new.positions = self.held.copy(), self.positions.copy()
        new._key = None
        return new

    @property
    def booted(self) -> bool:
        """Whether it has its producer and is in the group."""
        return self.process >= 0

    def key(self) -> int:
        """Computed once: in a search a member changes only after `clone`."""
        if self._key is None:
            s = self.state
            core = (s.phase, s.partitions, s.pending, s.transaction, s.now_ms, s.committed_at_ms)
            parts = (
                self.name,
                repr((core, self.todo, self.stable_ends)),
                (s.tokens, s.failures, s.stopping, s.schema_changed, s.held, s.stalled),
                repr((s.full_since_ms, s.turns, self.reading)),
                tuple(sorted(self.held.items())),
                tuple(sorted(self.positions.items())),
                (self.process, self.owned, self.seen, self.generation, self.ended),
                self.producer.key(),
                tuple((p, one.key()) for p, one in sorted(self.producers.items())),
            )
            self._key = hash(parts)
        return self._key

    # ---- what the scheduler can do with a process ---------------------------------------------

    def go(self, kafka: Kafka, now_ms: int, fault: str = "") -> None:
        """Its next effect, or a poll where there is none; nothing if Kafka says "not now"."""
        if not self.booted:
            self._boot(kafka)
        elif not self.todo:
            self._poll(kafka, now_ms)
        else:
            self._perform(kafka, now_ms, fault)

    def rejoin(self, kafka: Kafka) -> None:
        """The client's background thread learns the generation before the application does."""
        self.generation = kafka.generation

    def revoke(self) -> None:
        """The client says that all partitions are going (eager protocol), at any moment."""
        gone, self.owned, self.positions = self.owned, frozenset(), {}
        self.seen = -1  # and has to join again
        self._handle(ev.Revoked(gone))

    def request_stop(self) -> None:
        self._handle(ev.StopRequested())

    def change_schema(self, table: str) -> None:
        self._handle(ev.SchemaChanged(frozenset({table})))

    # ---- events ---------------------------------------------------------------------------------

    def _handle(self, event: ev.Event) -> None:
        before = self.state.phase
        if not self.guards.abort_on_revoke and isinstance(event, ev.Revoked):
            return
        if not self.guards.epoch_bump_after_unknown:
            event = _without_doubt(event)
        self.state, effects = step(self.state, event)
        unasked = isinstance(event, ev.Revoked | ev.StopRequested)
        superseded = unasked and before in IN_TRANSACTION and self.state.phase is not before
        if superseded or (effects and isinstance(effects[-1], ANSWERED)):
            self.todo = effects  # what was asked for before is pointless now
        else:
            self.todo = (*effects, *self.todo) if unasked else (*self.todo, *effects)

    def _boot(self, kafka: Kafka) -> None:
        if self.state.fencing is Fencing.GROUP:
            self._init(kafka)
        self.process = kafka.join(self.name)

    def _init(self, kafka: Kafka) -> None:
        """Under a spare id where a decided transaction of the last one has not all its markers."""
        while True:
            try:
                return self.producer.init(kafka)
            except NotNowError:
                known = self.producer.unclean_abort_is_unknown
                self.producer = Producer(f"{self.producer.tid}#", known)

    def _poll(self, kafka: Kafka, now_ms: int) -> None:
        if kafka.processes[self.name] != self.process:
            self._handle(ev.Failed(ev.Failure.FENCED, "FENCED_INSTANCE_ID"))
        elif self.seen != kafka.generation:
            if self.owned:
                self.revoke()
                return
            self.seen = self.generation = kafka.generation
            self.owned = frozenset(p for p, name in kafka.owners.items() if name == self.name)
            self.reading = None
            self._handle(ev.Assigned(self.owned))
        elif self.state.held and now_ms > self.state.now_ms:
            self._handle(ev.TablesDecided(self.state.held))
        else:
            self._handle(self._fetch(kafka, now_ms))

    def _fetch(self, kafka: Kafka, now_ms: int) -> ev.Polled:
        arrivals: list[Arrival] = []
        offsets: dict[int, tuple[int, ...]] = {}
        full = False
        ends: dict[int, int] = {}
        read_to: dict[int, int] = {}
        for partition in sorted(self.positions):
            if self.reading is not None and partition not in self.reading:
                continue
            log = kafka.log((SOURCE, partition))
            ends[partition] = len(log.entries)
            left = log.committed(self.positions[partition])
            got = left[:POLL_MESSAGES]
            if got == left or not self.guards.end_comes_last:
                read_to[partition] = log.last_stable
            if not got:
                continue
            offsets[partition] = tuple(offset for offset, _ in got)
            full = full or len(got) == POLL_MESSAGES
            self.positions[partition] = got[-1][0] + 1
            by_table = sorted(got, key=lambda item: (item[1].table, item[0]))
            for table, items in groupby(by_table, key=lambda item: item[1].table):
                batch = list(items)
                places = tuple(offset for offset, _ in batch)
                rows = sum(not message.bad for _, message in batch)
                size = sum(message.size for _, message in batch)
                known = SPARSE * size if table in KNOWN_TABLES else 0
                one = Arrival(partition, table, places, rows, size, decoded=known)
                arrivals.append(one)
        return ev.Polled(now_ms, tuple(arrivals), offsets, full, ends, read_to)

    def _fence(self, kafka: Kafka, partition: int) -> JournalEnd:
        """What the group shows, then a new epoch of the partition's id, then the journal's end."""
        shown = kafka.offsets.get(partition)
        whose = "source" if self.guards.id_per_partition else self.name
        known = self.guards.unclean_abort_is_unknown
        self.producers[partition] = Producer(f"app.{whose}.{partition}", known)
        if self.guards.fence_before_truth:
            self.producers[partition].init(kafka)
        return JournalEnd(len(kafka.log((JOURNAL, partition)).entries), shown)

    def _read(self, kafka: Kafka, partitions: frozenset[int] | None) -> None:
        """What the client fetched of a partition before its pause is fetched again after it."""
        for paused in self.positions.keys() - (self.owned if partitions is None else partitions):
            fetched = kafka.log((SOURCE, paused)).committed(self.positions[paused])
            if fetched and not self.guards.paused_is_read_again:
                self.positions[paused] = fetched[0][0] + 1
        self.reading = partitions

    # ---- effects --------------------------------------------------------------------------------

    def _perform(self, kafka: Kafka, now_ms: int, fault: str) -> None:
        effect = self.todo[0]
        try:
            answer = self._do(kafka, effect, now_ms, fault)
        except NotNowError:
            return
        except FencedError as error:
            answer = ev.Failed(ev.Failure.FENCED, str(error))
        except AbortableError as error:
            answer = ev.Failed(ev.Failure.ABORT, str(error))
        except UnusableError as error:
            answer = ev.Failed(ev.Failure.UNKNOWN, str(error))
        if isinstance(effect, ef.ReadTruth) and answer is None:
            return  # half of it is done
        self.todo, self.stable_ends = self.todo[1:], None
        if answer is not None:
            self._handle(answer)

    def _do(self, kafka: Kafka, effect: ef.Effect, now_ms: int, fault: str) -> ev.Event | None:
        match effect:
            case ef.Keep(arrival, skip):
                place = (arrival.partition, arrival.table)
                self.held[place] = self.held.get(place, ()) + tuple(arrival.offsets[skip:])
            case ef.Drop(partitions):
                self.held = {k: v for k, v in self.held.items() if k[0] not in partitions}
            case ef.Seek(partition, offset):
                if partition in self.owned:
                    self.positions[partition] = offset
            case ef.Read(partitions):
                self._read(kafka, partitions)
            case ef.Fence(partitions):
                ends = {p: self._fence(kafka, p) for p in sorted(partitions)}
                if fault:  # done, and to be done again
                    raise NotNowError
                return ev.PredecessorsFenced(ends)
            case ef.ReadTruth(_, ends) if ends:
                return failure(fault) or ev.TruthRead(read_heads(kafka, ends), now_ms)
            case ef.ReadTruth(partitions):
                if not fault and self.stable_ends is None:  # the first of two turns
                    self.stable_ends = stable_ends(kafka, partitions)
                    return None
                return failure(fault) or ev.TruthRead(
                    read_truth(kafka, partitions, self.stable_ends or {}), now_ms
                )
            case ef.Begin():
                return self._begin(kafka, effect, fault)
            case ef.Produce(seals):
                most = self.state.limits.max_decoded_bytes
                results = tuple(
                    form(kafka, self.producer, seal, self.held[seal.partition, seal.table], most)
                    for seal in seals
                )
                for seal, result in zip(seals, results, strict=True):
                    place = seal.partition, seal.table
                    held = self.held.pop(place)
                    if result.left is not None:
                        self.held[place] = held[-result.left.messages :]
                return failure(fault) or ev.Produced(results)
            case ef.WriteJournal(records):
                written = {
                    r.partition: self.producer.send(kafka, (JOURNAL, r.partition), r)
                    for r in records
                }
                return failure(fault) or ev.JournalWritten(written)
            case ef.SendOffsets():
                metadata = self.producer.metadata
                if metadata is None or not self.guards.metadata_at_begin:
                    metadata = GroupMetadata(self.name, self.process, self.generation)
                return self.producer.send_offsets(kafka, effect, metadata, fault)
            case ef.Commit():
                return self.producer.end(kafka, fault, commit=True)
            case ef.Abort():
                return self.producer.end(kafka, fault, commit=False)
            case ef.ShowOffsets(offsets):
                if not fault:
                    metadata = GroupMetadata(self.name, self.process, self.generation)
                    kafka.show_offsets(metadata, dict(offsets))
            case ef.Replace():
                if self.state.fencing is Fencing.GROUP:
                    self._init(kafka)
                return failure(fault) or ev.Replaced()
            case ef.Exit(error):
                self.ended, self.error = True, error
        return None

    def _begin(self, kafka: Kafka, effect: ef.Begin, fault: str) -> ev.Event:
        if fault == "undecided" and effect.tables:
            return ev.TablesUndecided(frozenset({min(effect.tables)}))
        if (failed := failure(fault)) is not None:  # the client has no group metadata
            return failed
        if effect.partition is not None:
            self.producer = self.producers[effect.partition]
            if not self.guards.fence_before_truth:
                self.producer.init(kafka)
        self.producer.begin(GroupMetadata(self.name, self.process, self.seen))
        return ev.Begun()
