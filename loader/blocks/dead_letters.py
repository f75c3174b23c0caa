"""Writes the messages of a block of left out ones to the dead letters: all of them once, or none.

Receives a block, gives loader.core.plan's answer. The letters of a block are one transaction, and
each names the block: they are themselves the record that it was done. The journal cannot hold it,
because its records are chained to the relay's group, and only the owner of a partition adds one.

The producer's transactional id is one for the app. An attempt has its producer before it claims the
block and reads the ledger; whoever looks whether another has written takes the id over first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from confluent_kafka import KafkaException, Message, TopicPartition

from loader.core import left_out, plan
from loader.core.retry_cause import RetryCause
from relay import names
from relay.blocks.dead_letter import BLOCK, Origin, RecordPlace, headers_of, headers_without
from relay.clickhouse.errors import About
from relay.config import kafka_clients
from relay.config.settings import Settings
from relay.errors import RelayError, Unavailable
from relay.failpoints import reached
from relay.kafka import librdkafka
from relay.kafka.errors import TransactionFailed, answered, ended
from relay.kafka.partition_reader import PartitionReader, begin_once_stable, records
from relay.kafka.record_limits import RecordLimits, record_bytes
from relay.kafka.topics import READ, Topics
from relay.kafka.transactional_producer import TransactionalProducer
from relay.records_pb2 import Block, LeftOut
from relay.schema.dead_reason import DeadKind, DeadReason

_NO_GROUP = "no consumer group"
"""Where the producer wants a member's metadata: no offsets are sent."""
_SECONDS = 30.0
"""For one request, and for the next record to come."""

T = TypeVar("T")


class _Missing(Exception):
    """A message cannot be read again; its text says why."""


class _Clients(NamedTuple):
    """The clients that a process keeps to write dead letters."""

    topics: Topics
    source: PartitionReader
    letters: PartitionReader
    ends: PartitionReader


class DeadLetterWriter:
    """Write the dead letters of one process; connect only when one is due.

    Attributes:
        producers: that it has had. Each has fenced the one before, whoever's that was.
    """

    def __init__(self, settings: Settings) -> None:
        self.producers = 0
        self._settings = settings
        self._topic = names.dead_topic(settings.app)
        self._source = settings.source.topic
        self._producer: TransactionalProducer | None = None
        self._clients: _Clients | None = None
        self._limits = RecordLimits()

    def ready(self, block: Block) -> int | plan.NoAnswer:
        """Start the producer before the block is claimed for dead letters.

        Returns:
            The end of the letters' partition.
        """

        def start() -> int:
            if self._producer is None:
                self._take_over()
            return self._end(block.partition)

        return _answer(start)

    def look(self, block: Block, since: int) -> plan.LettersFound | plan.NoAnswer:
        """Fence any other writer of the app's dead letters, then look for those of the block.

        Args:
            block: whose.
            since: offset before which they cannot be; -1: not known.
        """
        return _answer(lambda: self._look(block, max(since, 0)))

    def write(self, block: Block, by: int) -> plan.LettersFound | plan.Impossible | plan.NoAnswer:
        """Write the letters if the source topic still has all messages.

        Args:
            block: whose.
            by: the producer that was there when the ledger was read (`producers` then). A later
                one took the place of whoever has fenced it since, and may have written them.
        """
        if by != self.producers:
            reason = "another loader may have written its dead letters since the ledger was read"
            return plan.NoAnswer(reason, cause=RetryCause.ANOTHER_LOADER)
        return _answer(lambda: self._write(block))

    def close(self) -> None:
        """Close all clients."""
        self._drop()
        if self._clients is not None:
            for reader in self._clients[1:]:
                reader.close()
            self._clients = None

    def _connected(self) -> _Clients:
        if self._clients is None:
            own = kafka_clients.reader(self._settings.kafka)
            self._clients = _Clients(
                Topics(self._settings),
                PartitionReader(kafka_clients.reader(self._settings.source_kafka)),
                PartitionReader(own),
                PartitionReader({**own, "isolation.level": "read_uncommitted"}),
            )
        return self._clients

    def _take_over(self) -> None:
        self._drop()
        identity = names.left_out_transactional_id(self._settings.app)
        # One letter a batch: what is refused for its size is too large by itself.
        client = {**kafka_clients.producer_under(self._settings, identity), "batch.num.messages": 1}
        seconds = 2 * self._settings.relay.transaction_timeout_seconds
        producer = TransactionalProducer(client, seconds, _NO_GROUP)
        try:
            producer.replace()
        except TransactionFailed as failed:
            producer.close()
            raise _error(failed) from failed
        self._producer = producer
        self.producers += 1
        reached("letters_taken_over")

    def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def _end(self, partition: int) -> int:
        """Return the end of the partition, uncommitted records included."""
        with _asking(self._topic):
            place = TopicPartition(self._topic, partition)
            return self._connected().ends.get_watermark_offsets(place, _SECONDS)[1]

    def _look(self, block: Block, since: int) -> plan.LettersFound:
        self._take_over()
        end = self._end(block.partition)  # what the one before has committed lies before it
        place, reader = TopicPartition(self._topic, block.partition), self._connected().letters
        with _asking(self._topic):
            low = begin_once_stable(reader, place, end, _SECONDS)
        if low > since or since > end:
            return plan.LettersFound(
                "unclear",
                f"its messages may be dead letters already: a loader was about to write them to "
                f"{self._topic}[{block.partition}] from {since} on, which holds {low} to {end} "
                "now; if you do not need them, --discard it",
            )
        place.offset = since
        with _asking(self._topic):
            offsets = [
                message.offset() or 0
                for message in records(reader, place, end, _SECONDS)
                if dict(librdkafka.headers(message)).get(BLOCK) == block.id.encode()
            ]
        reached("letters_looked_for")
        if not offsets:
            return plan.LettersFound("never")
        return plan.LettersFound("written", left_out.describe_dead(block, self._topic, offsets))

    def _write(self, block: Block) -> plan.LettersFound | plan.Impossible:
        producer = self._producer
        if producer is None:
            raise Unavailable(
                "the producer of dead letters was closed", "the loader tries it again"
            )
        try:
            offsets = self._transaction(producer, block)
        except _Missing as missing:
            self._abort(producer)
            return plan.Impossible(str(missing))
        except TransactionFailed as failed:
            self._abort(producer)
            for lost in failed.lost:  # the next attempt leaves the value behind
                self._limits.learn(lost.topic, lost.size, None)
            raise _error(failed) from failed
        except RelayError:
            self._abort(producer)
            raise
        return plan.LettersFound(
            "written", left_out.describe_dead(block, self._topic, sorted(offsets))
        )

    def _transaction(self, producer: TransactionalProducer, block: Block) -> list[int]:
        """Write the letters in one transaction; return their offsets."""
        offsets: list[int] = []
        producer.begin(_NO_GROUP)
        reached("letters_begun")
        for one, message in self._messages(block):
            key = str(RecordPlace(block.partition, one.offset)).encode()
            value, headers = self._letter(block, one, message, key)
            place = TopicPartition(self._topic, block.partition)
            producer.produce(place, value, key, headers, offsets.append)
        producer.flush()
        reached("letters_written")
        clean = producer.commit()
        reached("letters_committed")
        if not clean:
            self._drop()  # a copy of its request could end a later transaction
        return offsets

    def _letter(
        self, block: Block, one: LeftOut, message: Message, key: bytes
    ) -> tuple[bytes | None, list[tuple[str, str | bytes | None]]]:
        value, source = message.value(), RecordPlace(block.partition, one.offset)
        origin = Origin(message.key(), librdkafka.headers(message))
        reason = DeadReason(DeadKind.REJECTED, one.reason)
        headers = headers_of(self._source, source, block.table, reason, origin, block.id)
        most = self._limits.most(self._topic)
        if most is None or record_bytes(value, key, headers) <= most:
            return value, headers
        size = len(value or b"")
        return None, headers_without(self._source, source, block.table, reason, size, block.id)

    def _messages(self, block: Block) -> Iterator[tuple[LeftOut, Message]]:
        """Read the block's messages from the source topic.

        Raises:
            _Missing: the topic no longer has all of them.
        """
        self._check_topic(block)
        wanted = {one.offset: one for one in block.left_out}
        reader, place = self._connected().source, TopicPartition(self._source, block.partition)
        with _asking(self._source):
            low, high = reader.get_watermark_offsets(place, _SECONDS)
            gone = [offset for offset in wanted if not low <= offset < high]
            if gone:
                raise _Missing(
                    f"{len(gone)} of its {len(wanted)} messages cannot become dead letters: "
                    f"{self._source}[{block.partition}] holds {low} to {high} now, without "
                    f"{', '.join(map(str, sorted(gone)[:3]))}; their rows are in the block, so "
                    "--retry it once the table takes them, or --discard it"
                )
            for first, end in left_out.stretches(sorted(wanted)):
                place.offset = first
                for message in records(reader, place, end, _SECONDS):
                    if (one := wanted.pop(message.offset() or 0, None)) is not None:
                        _check_table(message, block)
                        yield one, message
        if wanted:
            raise _Missing(
                f"{len(wanted)} of its messages are in {self._source}[{block.partition}] no more, "
                f"the first at {min(wanted)}: their rows are in the block, so --retry it once the "
                "table takes them, or --discard it"
            )

    def _check_topic(self, block: Block) -> None:
        """Check that the source topic is the one that the block's messages came from."""
        topic = self._connected().topics.describe(self._source, (READ,))
        now = "not there" if topic is None else topic.topic_id
        then = block.source_topic, block.source_topic_id
        if topic is None or then != (self._source, now):
            of = " with the id ".join(then) if then[1] else "a topic that its block does not name"
            raise _Missing(
                f"its messages came from {of}, and source.topic {self._source} is {now} now: they "
                "cannot be read again; --retry it once the table takes them, or --discard it"
            )

    def _abort(self, producer: TransactionalProducer) -> None:
        """Abort, so that readers need not wait for the timeout; else the next takeover ends it."""
        with contextlib.suppress(TransactionFailed):
            producer.abort()
        self._drop()


def _check_table(message: Message, block: Block) -> None:
    headers = librdkafka.headers(message)
    tables = [value for name, value in headers if name == names.TABLE_HEADER]
    if tables != [block.table.encode()]:
        raise _Missing(
            f"the message at {message.offset()} in {message.topic()}[{message.partition()}] names "
            f"the table {tables!r}, and the block is of {block.table}: it is another message"
        )


def _answer(call: Callable[[], T]) -> T | plan.NoAnswer:
    """Make a call; an error concerns these messages only, so that no other block waits."""
    try:
        return call()
    except RelayError as error:
        step = f"; next: {error.next_step}" if error.next_step else ""
        return plan.NoAnswer(f"dead letters: {error.message}{step}", About.UNKNOWN)


@contextlib.contextmanager
def _asking(topic: str) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        grant = f"grant Read on topic {topic} to the loader's user"
        raise answered(f"read {topic}", error.args[0], grant) from error


def _error(failed: TransactionFailed) -> RelayError:
    return ended(
        failed,
        fenced="another loader writes dead letters too; this loader tries it again",
        refused="grant the loader's user what `relay doctor --grants --role loader` prints",
        unknown="the loader checks whether the letters are there, and tries again if not",
    )
