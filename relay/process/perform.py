"""Performs the core's effects on buffers and producer, and answers each.

Receives effects, gives the event that answers it. It stands between the core, which
knows no client, and the clients, which decide nothing.
"""

from __future__ import annotations

import logging
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial

from confluent_kafka import TopicPartition

from relay import names
from relay.blocks import journal, placement
from relay.blocks.chunks import Encoder
from relay.blocks.dead_letter import RecordPlace, headers_of, headers_without
from relay.blocks.form_block import BlockFormer, DeadMessage, Formed, Messages, refuse
from relay.config.settings import Settings
from relay.core import effects as ef
from relay.core import events as ev
from relay.core.buffering import split_buffer
from relay.core.offsets import Offsets
from relay.core.records import JournalRecord
from relay.core.state import Buffer, Seal
from relay.failpoints import reached
from relay.intake.buffers import Buffers, Held
from relay.intake.membership import nobody_else
from relay.intake.sort_poll import Poll, RowDensity
from relay.intake.source import SourceMember
from relay.kafka import group_offsets
from relay.kafka.errors import TransactionFailed
from relay.kafka.record_limits import record_bytes
from relay.kafka.transactional_producer import TransactionalProducer
from relay.operate.metrics.observer import NOTHING, RelayObserver
from relay.process import producers
from relay.process.chunk_queue import ChunkQueue
from relay.process.log_lines import CommitTotals, LogContext
from relay.process.seal_results import Sent
from relay.process.suitability.watch import Suitability, with_likeness
from relay.program.waiting import ServerWait
from relay.rows.codecs_of_tables import TableCodecs
from relay.schema.dead_reason import DeadReason

log = logging.getLogger(__name__)

_TOGETHER_BYTES = 1 << 20
"""Of messages decoded at a time, of buffers of one table: a larger buffer gains nothing by it."""


class Performer:
    """Perform the effects of one relay process.

    Attributes:
        producers: that transactions run under.
        density: of the tables' rows, learned from what is sealed.
    """

    def __init__(
        self,
        settings: Settings,
        tables: TableCodecs,
        source: SourceMember,
        wait: ServerWait,
        observer: RelayObserver = NOTHING,
    ) -> None:
        self._settings = settings
        self._observer = observer
        self._tables = tables
        self._source = source
        self._wait = wait
        self._author = journal.Author(settings.app, settings.source.topic, settings.relay.member)
        self._buffers = Buffers()
        self._poll = Poll()
        self.density = RowDensity(settings.source.framing)
        self._encoders = defaultdict[str, Encoder](lambda: Encoder(settings.block.chunk_bytes))
        self._written = CommitTotals()
        self._suitable = Suitability(settings, tables, wait)
        self._log_context = LogContext(settings.app, settings.relay.member)
        self.producers = producers.make(settings, observer, tables.topics)
        self._producer: TransactionalProducer = self.producers.of(None)
        self._under_way = frozenset[int]()
        self._sealing = frozenset[str]()
        self._home = 0
        self._begun_at = time.monotonic()

    def own(self, partitions: frozenset[int]) -> None:
        """Note which source partitions this relay has: no table waits for what another one needs.

        A transaction would say so when it begins; while all tables wait none does.
        """
        self._tables.topics.own(partitions)
        self._tables.topics.need(placement.home_of(partitions) + 1)

    def polled(self, poll: Poll) -> None:
        """Note the poll whose arrivals the core is about to get."""
        self._poll = poll
        self.producers.serve()

    def perform(self, effect: ef.Effect) -> ev.Event | None:
        """Perform one effect; return its answer, an event, if it has one."""
        name = _snake(type(effect).__name__)
        self._log_context.before(effect)
        reached(f"before_{name}")
        try:
            answer = self._attempt(effect)
        except TransactionFailed as failed:
            self._tables.topics.doubt()
            kind, why = self._kind(failed)
            log.warning(
                "a transactional call failed",
                extra={"effect": name, "kind": kind.name, "why": why},
            )
            return ev.Failed(kind, why, dark=bool(failed.dark), took_ms=self._took_ms())
        reached(f"after_{name}")
        self._log_context.after(effect)
        return answer

    def _kind(self, failed: TransactionFailed) -> tuple[ev.Failure, str]:
        """Classify a failure; remember a refused record, so that it is left out next time."""
        if failed.kind is ev.Failure.REFUSED:
            learned = self._tables.topics.learn(failed, self._sealing)
            return (ev.Failure.LEARNED if learned else failed.kind), failed.why
        if failed.kind is ev.Failure.FENCED and (timed_out := self._timed_out()):
            return ev.Failure.UNKNOWN, f"{failed.why}; {timed_out}"
        return failed.kind, failed.why

    def _timed_out(self) -> str:
        """Return how the coordinator, and no other process, fenced the producer; "": it may not.

        Across clusters whoever has a source partition has its transactional id: there a relay that
        slept for so long must not take it back, and ends.
        """
        seconds = time.monotonic() - self._begun_at
        timeout = self._settings.relay.transaction_timeout_seconds
        if self._settings.crosses or seconds < timeout:
            return ""
        if not nobody_else(self._settings, self._source.ids, self._wait):
            return ""
        return (
            f"its transaction was open for {seconds:.1f} s of {timeout:g}, and no other process "
            "has this member: the coordinator ended the transaction"
        )

    def _took_ms(self) -> int:
        """Return how long ago the last transaction was begun."""
        return round(1000 * (time.monotonic() - self._begun_at))

    def _attempt(self, effect: ef.Effect) -> ev.Event | None:
        match effect:
            case ef.Keep(arrival, skip):
                self._buffers.keep(arrival, self._poll, skip)
                return None
            case ef.Drop(partitions):
                self._buffers.drop(partitions)
                self.producers.let_go(partitions - self._under_way)
                return None
            case ef.ShowOffsets(offsets):
                group_offsets.show(self._source.consumer, self._places(offsets))
                return None
            case ef.Replace(why):
                log.warning("replacing the producer", extra={"why": why})
                self._wait(self.producers.start)
                return ev.Replaced()
            case _:
                return self._in_transaction(effect)

    def _in_transaction(self, effect: ef.Effect) -> ev.Event:
        match effect:
            case ef.Begin(tables, partition):
                # Before the wait: what is buffered was polled in this generation.
                group = self._source.consumer.consumer_group_metadata()
                owned = self._source.assigned
                self._home = placement.home_of(owned) if partition is None else partition
                if undecided := self._wait(lambda: self._tables.undecided(tables)):
                    return ev.TablesUndecided(undecided)
                if waiting := self._tables.have_topics(tables, self._home):
                    return ev.TablesUndecided(waiting)
                writes = owned | {self._home}
                if dark := self._wait(lambda: self._tables.topics.dark(tables, writes)):
                    return ev.TablesUndecided(dark)
                self._sealing = tables
                self._producer = self.producers.of(partition)
                self._under_way = frozenset() if partition is None else frozenset({partition})
                self._suitable.begun()
                self._begun_at = time.monotonic()
                self._producer.begin(group)
                return ev.Begun(self._tables.alone(tables))
            case ef.Produce(seals):
                return self._produce(seals)
            case ef.WriteJournal(records):
                return self._write_journal(records)
            case ef.SendOffsets(offsets):
                epochs = self._source.leader_epochs({p: of.floor for p, of in offsets.items()})
                self._producer.send_offsets(self._settings.source.topic, offsets, epochs=epochs)
                return ev.OffsetsSent()
            case ef.Commit():
                clean = self._producer.commit()
                self._under_way = frozenset()
                self._written.report()
                self._suitable.committed()
                return ev.Committed(clean, self._took_ms())
            case ef.Abort():
                self._producer.abort()
                self._under_way = frozenset()
                return ev.Aborted()
            case _:
                raise AssertionError(f"not an effect of this performer: {effect!r}")

    def _places(self, offsets: Offsets) -> list[TopicPartition]:
        epochs = self._source.leader_epochs({p: of.floor for p, of in offsets.items()})
        return group_offsets.places(self._settings.source.topic, offsets, epochs)

    def _produce(self, seals: tuple[Seal, ...]) -> ev.Produced:
        """Send chunks and dead letters of every seal, with one flush for all of them."""
        sent: dict[str, Sent] = {}
        queue = ChunkQueue(self._producer)
        for together in group_seals(seals):
            sent.update((outcome.seal.block_id, outcome) for outcome in self._send(together, queue))
        queue.release()
        self._suitable.check(self._buffers.held(), self._give_up)
        reached("mid_produce")
        self._producer.flush()
        in_order = [sent[seal.block_id] for seal in seals]
        for outcome in in_order:
            self._written.add(outcome)
        topics = ((outcome, self._tables.topics.of(outcome.seal.table)) for outcome in in_order)
        return ev.Produced(tuple(outcome.result(topic) for outcome, topic in topics))

    def _send(self, seals: Sequence[Seal], queue: ChunkQueue) -> Iterator[Sent]:
        """Form blocks from the buffers of some seals of one table and hand them to the client."""
        buffers = [self._buffers.take(seal.partition, seal.table) for seal in seals]
        started = time.monotonic()
        formed = self._form(seals[0].table, buffers)
        seconds = (time.monotonic() - started) / len(seals)
        shared = formed[0].facts.first_row is not None
        place = self._place(seals[0])
        offsets = queue.add_shared(place, seals, formed) if shared else []
        for due, block, buffer in zip(seals, formed, buffers, strict=True):
            seal, rest = _split_seal(due, buffer, block.left)
            likely = with_likeness(seal.table, block, buffer) if block.dead else block
            facts = likely.facts
            self._suitable.formed(seal, facts)
            self._observer.formed(seal, facts, seconds)
            decoded = buffer.values.size(seal.buffer.messages)
            self.density.learn(seal.table, facts.rows, decoded, facts.decoded_bytes)
            if not shared:
                place = self._place(seal)
                offsets = queue.add(place, seal, likely)
                self._produce_dead(seal, likely.dead, buffer)
            if rest is not None:
                buffer.drop(seal.buffer.messages)
                self._buffers.put_back(seal.partition, buffer)
            yield Sent(seal, facts, offsets, seals[0], place.partition, rest)

    def _place(self, seal: Seal) -> TopicPartition:
        """Return where the chunks of a seal go; a large one asks for a partition of its own."""
        table, own = seal.table, seal.partition
        partition = placement.chosen(own, self._home, self._tables.topics.width(table))
        if partition != own and seal.buffer.bytes > _TOGETHER_BYTES:
            self._tables.topics.widen_soon(table)
        return TopicPartition(self._tables.topics.of(table), partition)

    def _form(self, table: str, held: Sequence[Held]) -> list[Formed]:
        """Form chunks and dead letters of each buffer.

        A message that cannot be read may come from a producer that knew a change earlier. It is
        read again by the newest row message before it becomes a dead letter. So is one with a
        value of a column that is gone, since the column may be back, but the registry is asked
        seldom then: more likely its producer is older than the table, and sends it for ever.
        """
        buffers = [Messages(one.offsets, one.column()) for one in held]
        source = self._settings.source
        while True:
            codec = self._tables.codec(table)
            if isinstance(codec, DeadReason):
                return [refuse(one, codec) for one in buffers]
            most = self._tables.topics.limits.most(self._tables.topics.of(table))
            by = codec, source.framing, self._encoders[table], source.unknown_fields, most
            formed = BlockFormer(*by, self._settings.block.max_decoded_bytes).form_all(buffers)
            unread = any(one.dead or one.facts.unknown for one in formed)
            if not unread and not any(one.passed_over for one in formed):
                return formed
            if not self._tables.overtaken(table, seldom=not unread):
                return formed

    def _give_up(self) -> None:
        """End the transaction without effect, just before the relay ends."""
        with suppress(TransactionFailed):  # the next start's, or its timeout, ends it then
            self._producer.abort()

    def _produce_dead(self, seal: Seal, dead: Sequence[DeadMessage], held: Held) -> None:
        """Queue the dead letters: each is the whole source message, with its place and reason."""
        place = TopicPartition(names.dead_topic(self._settings.app), seal.partition)
        topic = self._settings.source.topic
        for offset, reason in dead:
            source, value = RecordPlace(seal.partition, offset), held.value(offset)
            headers = headers_of(topic, source, seal.table, reason, held.origin(offset))
            key, most = str(source).encode(), self._tables.topics.limits.most(place.topic)
            kept: bytes | None = value
            if most is not None and record_bytes(value, key, headers) > most:
                size = len(value or b"")
                headers = headers_without(topic, source, seal.table, reason, size)
                kept = None
            self._producer.produce(place, kept, key, headers, lambda _: None)

    def _write_journal(self, records: tuple[JournalRecord, ...]) -> ev.JournalWritten:
        topic = names.journal_topic(self._settings.app)
        offsets: dict[int, int] = {}
        now_ms = time.time_ns() // 1_000_000  # the same in all: it tells what is one transaction
        for record in records:
            index = record.partition
            self._producer.produce(
                TopicPartition(topic, index),
                journal.encode(record, self._author, now_ms),
                str(index).encode(),
                [],
                partial(offsets.__setitem__, index),
            )
        self._producer.flush()
        return ev.JournalWritten(offsets)


def group_seals(seals: Iterable[Seal]) -> Iterator[list[Seal]]:
    """Give the seals by table, as many of small buffers as are decoded at a time."""
    waiting: dict[str, list[Seal]] = {}
    for seal in seals:
        group = waiting.setdefault(seal.table, [])
        if group and sum(other.buffer.bytes for other in [*group, seal]) > _TOGETHER_BYTES:
            yield waiting.pop(seal.table)
            group = waiting.setdefault(seal.table, [])
        group.append(seal)
    yield from waiting.values()


def _split_seal(seal: Seal, held: Held, left: int) -> tuple[Seal, Buffer | None]:
    """Return the seal of what became a block, and the buffer of the last messages, so many."""
    if not left:
        return seal, None
    count = len(held.offsets) - left
    end, behind = held.offsets[count - 1] + 1, held.offsets[count]
    sizes, beside = held.sizes(count), held.beside(count)
    taken, rest = split_buffer(seal.buffer, count, end, behind, sizes, beside)
    return replace(seal, buffer=taken), rest


@cache
def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
