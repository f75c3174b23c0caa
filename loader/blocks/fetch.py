"""Reads a block's chunks from its block topic and checks them against the journal.

Receives a Block, gives its rows as one record batch. One consumer per process, kept
over blocks, since a new one costs about a second; read_committed, at exactly the
block's offsets; commits nothing. Small blocks are read several at once, each from a partition of
its own: one after another, the client would wait for the broker at each. Then it rests: at the
ends of so many partitions it would ask again every few milliseconds, for as long as their INSERTs
take.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from loader.blocks.block_order import BETWEEN, ChunkAt, Place, after, chunk_at, together
from loader.clickhouse.client import TableRefused
from relay.blocks import chunks, placement
from relay.config import kafka_clients
from relay.config.settings import Kafka
from relay.errors import RelayError, Unavailable
from relay.kafka.errors import answered
from relay.kafka.partition_reader import PartitionReader
from relay.records_pb2 import Block

READ_SECONDS = 30.0
"""For one block: 10 MB take well under a second; longer means a broker is away."""
_POLL_SECONDS = 0.5
_LARGE = {"max.partition.fetch.bytes": 16 << 20}
"""A whole block by one request: with librdkafka's 1 MiB one of 10 MB takes several."""
_KNOWN_SECONDS = 300.0
"""librdkafka forgets what it heard of a topic that is not assigned any more after 15 minutes."""
_APPEAR_SECONDS = 10.0
"""Until a broker lists a partition that was written to."""
_LOOK_SECONDS = 0.1
_EARLY_BYTES = 16 << 20
"""Of chunks that are kept until their blocks are wanted; the partitions may hold more of them."""

_GONE = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - how the library names its local errors
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001
    }
)


class Damaged(Exception):
    """The chunks are gone or differ from the journal; another attempt changes nothing."""


class ReadChunks(NamedTuple):
    """Chunks as they were read: a block's own, or one that it shares with others.

    Attributes:
        at: of the first.
        headers: of the first.
        rows: of all blocks that share them.
    """

    at: ChunkAt
    crc32c: int
    headers: Mapping[str, object]
    rows: pa.RecordBatch


class Fetcher:
    """Read blocks with one consumer.

    Attributes:
        messages: of the block that was fetched last: which message each row came from, as of
            relay.blocks.message_rows; empty where the block does not say.
    """

    def __init__(self, kafka: Kafka) -> None:
        self._consumer = PartitionReader(kafka_clients.reader(kafka) | _LARGE)
        self._at: dict[Place, int] = {}  # next offset of what is assigned
        self._resting = True  # nothing is assigned; what was read for later is kept
        self._several = False  # what is assigned are small blocks, to be read at once
        self._wanted: dict[Place, range] = {}  # of them, what has not come yet
        self._early: defaultdict[Place, deque[Message]] = defaultdict(deque)
        self._early_bytes = 0
        self._silent: dict[Place, str] = {}  # waited for in vain since it rested, and why
        self._asked: dict[str, tuple[float, int]] = {}  # topics: when, and their partitions
        self._shared: ReadChunks | None = None  # the next block's rows may be in them, too
        self.messages = b""

    def fetch(self, block: Block, ahead: Sequence[Block] = ()) -> pa.RecordBatch:
        """Return the block's rows; of those ahead, small ones are read with it.

        A large one is read in the background, while the caller is busy with this block. `ahead`
        are those that will probably be wanted next, in their order.

        Raises:
            Damaged: chunks, rows or checksum differ from the journal, or are gone.
            Unavailable: Kafka did not deliver all chunks within READ_SECONDS, or those of an
                earlier block of this partition, since the last rest.
            TableRefused: the brokers do not let this user read the topic.
            Refused: they said no to anything else.
        """
        read = self._shared
        if read is None or read.at != chunk_at(block):
            self._shared = None
            read = self._read(block, ahead)
        rows = own_rows(block, read)
        self._shared = read if block.HasField("share") else None
        listed = read.headers.get(placement.messages_header(block))
        self.messages = listed if isinstance(listed, bytes) else b""
        return rows

    def rest(self) -> None:
        """Pause until the next fetch."""
        self._forget()
        self._silent = {}
        self._unassign()
        self._shared = None

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _read(self, block: Block, ahead: Sequence[Block]) -> ReadChunks:
        place = placement.place(block)
        if why := self._silent.get(place):
            raise Unavailable(f"not waited for, because an earlier block there met: {why}")
        start = time.monotonic()
        try:
            self._seek(block, ahead)
            read = self._chunks(block)
            if self._several:
                self._read_neighbours()
            elif not self._resting and (later := after(block, ahead)):
                self._seek(later[0], later[1:])
        except KafkaException as error:
            cause = error.args[0]
            if cause.code() in _GONE:
                self._forget()
                raise Damaged(f"{_shown(block)}: {cause.str()}") from error
            grant = f"grant Read on topic {block.topic} to the user of kafka.client"
            failed = answered(f"read {block.topic}", cause, grant)
            if cause.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                failed = TableRefused(failed.message, failed.next_step, code=cause.code())
            self._note_failure(failed, place, time.monotonic() - start)
            raise failed from error
        except Unavailable as error:
            self._note_failure(error, place, time.monotonic() - start)
            raise
        except BaseException:
            self._forget()
            raise
        return read

    def _note_failure(self, failed: RelayError, place: Place, seconds: float) -> None:
        """Note what was waited for in vain: a task may have many blocks of a partition."""
        if seconds >= READ_SECONDS and isinstance(failed, Unavailable):
            # What was to come with it was waited for as long.
            self._silent |= dict.fromkeys([place, *self._wanted], failed.message)
        self._forget()

    def _seek(self, block: Block, ahead: Sequence[Block]) -> None:
        """Continue an earlier read if it stopped nearby; else assign the consumer anew."""
        if self._kept_whole(block) if self._resting else self._reads_on_to(block):
            return
        self._forget()
        wanted = self._wanted = together(block, ahead)
        for topic, last in dict(sorted(wanted)).items():  # the highest partition of each topic
            self._learn_leaders(topic, last)
        starts = {place: offsets.start for place, offsets in wanted.items()}
        self._consumer.assign([TopicPartition(*place, first) for place, first in starts.items()])
        self._at = starts
        self._resting, self._several = False, len(wanted) > 1

    def _reads_on_to(self, block: Block) -> bool:
        at = self._at.get(placement.place(block))
        return at is not None and 0 <= block.first_offset - at <= BETWEEN

    def _kept_whole(self, block: Block) -> bool:
        offsets = range(block.first_offset, block.next_offset)
        early = self._early[placement.place(block)]
        return sum(message.offset() in offsets for message in early) == block.chunks

    def _read_neighbours(self) -> None:
        """Keep what was assigned together with a block, then rest.

        What does not come is read again, by itself: then it is known whose trouble it is.
        """
        while self._wanted:
            message = self._consumer.poll(_POLL_SECONDS)
            if message is None or message.topic() is None:
                break
            self._keep(_origin(message), message)
        self._unassign()

    def _unassign(self) -> None:
        self._consumer.unassign()
        self._resting, self._several = True, False

    def _learn_leaders(self, topic: str, partition: int) -> None:
        """Make the client look up the leaders of the topic's partitions now, up to this one.

        Left to itself, it looks once a second for those of a topic that is assigned to it for the
        first time, or of a partition that is new. What a broker does not know counts as deleted,
        and it may hear of a partition a moment after the one that has it.
        """
        now = time.monotonic()
        asked, width = self._asked.get(topic, (-_KNOWN_SECONDS, 0))
        if now - asked < _KNOWN_SECONDS and partition < width:
            return
        deadline = now + _APPEAR_SECONDS
        while True:
            metadata = self._consumer.list_topics(topic, timeout=READ_SECONDS).topics.get(topic)
            width = 0 if metadata is None else len(metadata.partitions)
            if partition < width or not width or time.monotonic() > deadline:
                break
            time.sleep(_LOOK_SECONDS)
        self._asked[topic] = now, width

    def _chunks(self, block: Block) -> ReadChunks:
        values: list[bytes] = []
        headers: Mapping[str, object] = {}
        place = placement.place(block)
        deadline = time.monotonic() + READ_SECONDS
        while len(values) < block.chunks:
            message = self._next(place)
            if message is None:
                if time.monotonic() > deadline:
                    self._explain(block, len(values))
                continue
            if (error := message.error()) is not None:
                if error.code() in _GONE or not error.retriable():
                    raise KafkaException(error)
                continue
            offset = message.offset() or 0
            if offset < block.first_offset:
                continue  # of an earlier block, in a read that goes on
            if offset >= block.next_offset:
                raise Damaged(
                    f"the block topic holds {len(values)} of {block.chunks} chunks before offset "
                    f"{offset}"
                )
            if not values:
                headers = dict(message.headers() or [])
            values.append(_value(message, block, len(values)))
            self._at[place] = offset + 1
            self._note_position(place, offset + 1)
        checksum = chunks.crc32c(values)
        _check(block, checksum)
        return ReadChunks(chunk_at(block), checksum, headers, _decoded(values))

    def _next(self, place: Place) -> Message | None:
        """Return a message of this partition, or an error; None if none has come yet."""
        if early := self._early[place]:
            kept = early.popleft()
            self._early_bytes -= len(kept.value() or b"")
            return kept
        message = self._consumer.poll(_POLL_SECONDS)
        if message is None or message.topic() is None:
            return message
        if _origin(message) == place:
            return message
        self._keep(_origin(message), message)
        return None

    def _keep(self, place: Place, message: Message) -> None:
        """Keep a chunk of a later block; one that finds no room is read again later."""
        size = len(message.value() or b"")
        if message.error() is not None or self._early_bytes + size > _EARLY_BYTES:
            self._at.pop(place, None)
        if place in self._at:
            self._early[place].append(message)
            self._early_bytes += size
        self._note_position(place, (message.offset() or 0) + 1)

    def _note_position(self, place: Place, position: int) -> None:
        """Note how far a partition was read, or that it is read again later."""
        wanted = self._wanted.get(place)
        if wanted and (position >= wanted.stop or place not in self._at):
            del self._wanted[place]

    def _forget(self) -> None:
        """Have the next read assign the consumer anew."""
        self._at, self._wanted = {}, {}
        self._early.clear()
        self._early_bytes = 0

    def _explain(self, block: Block, count: int) -> NoReturn:
        where = TopicPartition(*placement.place(block))
        low, high = self._consumer.get_watermark_offsets(where, timeout=10.0)
        if low > block.first_offset or high < block.next_offset:
            raise Damaged(
                f"{_shown(block)} holds offsets {low} to {high}, but the block "
                f"is at {block.first_offset} to {block.next_offset}: its records were deleted, or "
                "the topic was deleted and created again"
            )
        raise Unavailable(
            f"only {count} of {block.chunks} chunks of {block.id} arrived within {READ_SECONDS:g} s"
        )


def _origin(message: Message) -> Place:
    return message.topic() or "", message.partition() or 0


def _shown(block: Block) -> str:
    topic, partition = placement.place(block)
    return f"{topic}[{partition}]"


def _value(message: Message, block: Block, sequence: int) -> bytes:
    """Check the chunk's key and headers; return its bytes."""
    headers = dict(message.headers() or [])
    key = message.key()
    if key != placement.key(block).encode() or headers.get("seq") != str(sequence).encode():
        raise Damaged(
            f"{_shown(block)}@{message.offset()} is chunk {headers.get('seq')!r} "
            f"of {key!r}, not chunk {sequence} of {placement.key(block)}"
        )
    value = message.value()
    if value is None:
        raise Damaged(f"{_shown(block)}@{message.offset()} is empty")
    return bytes(value)


def _check(block: Block, checksum: int) -> None:
    if checksum != block.crc32c:
        raise Damaged(
            f"the CRC-32C of the chunks is {checksum:08x}, but the journal says {block.crc32c:08x}"
        )


def _decoded(values: list[bytes]) -> pa.RecordBatch:
    try:
        return chunks.decode(values)
    except ValueError as error:  # pyarrow's own errors derive from it
        raise Damaged(f"the chunks are not an Arrow stream: {error}") from error


def own_rows(block: Block, read: ReadChunks) -> pa.RecordBatch:
    """Return the block's rows of these.

    Raises:
        Damaged: checksum or rows differ from the journal.
    """
    _check(block, read.crc32c)
    count = read.rows.num_rows
    if not block.HasField("share"):
        if count != block.rows:
            raise Damaged(f"the chunks hold {count} rows, but the journal says {block.rows}")
        return read.rows
    first = block.share.first_row
    if first + block.rows > count:
        raise Damaged(
            f"the chunk holds {count} rows, but the journal says {block.rows} from {first} on"
        )
    return read.rows.slice(first, block.rows)
