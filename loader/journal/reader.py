"""The journal's records, by one consumer that is kept between micro-batches.

Receives positions, gives rows (partition, offset, block) as loader.journal.source shows them to
Spark. It reads committed records only, and never beyond the last stable offset. The oldest come
first, of whichever partition: what a relay sealed of a table in one transaction is in the journals
of several, and makes one INSERT if it comes in one micro-batch.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from google.protobuf.message import DecodeError

from loader.console import say
from loader.core.positions import only_a_marker
from loader.journal.begin_plan import deleted_unread, lost_end
from relay import log
from relay.blocks.journal_record import no_record
from relay.config import kafka_clients
from relay.config.settings import Kafka
from relay.errors import Refused, Unavailable
from relay.kafka.errors import REFUSED, answered
from relay.kafka.partition_reader import OUT_OF_RANGE, PartitionReader
from relay.records_pb2 import Commit

ANSWER_SECONDS = 30.0
"""For a broker to answer a bounded read."""
_THERE_SECONDS = 0.05
"""For what is there to come, in a read that is not bounded."""
_WAITING_BYTES = 64 << 20
"""Of records that wait for older ones of other partitions to come."""

Positions = dict[int, int]
"""The next offset, by partition."""
Row = tuple[int, int, bytes | None]


class RecordRows(NamedTuple):
    """The rows of a journal record.

    Attributes:
        rows: at least one, so that the position moves.
        weight: how many blocks they count as, where a read is bounded by blocks.
        transaction: of the relay that wrote the record; no batch ends within one.
    """

    rows: list[Row]
    weight: float = 0.0
    transaction: Hashable = None


class _Batch:
    """What is read at a time: so many blocks, and what remains of the last one's transaction."""

    def __init__(self, blocks: float) -> None:
        self.rows: list[Row] = []
        self._left = blocks
        self._transaction: Hashable = None

    def takes(self, record: RecordRows) -> bool:
        """Append the record's rows, or return that the batch ends before them."""
        within = record.transaction is not None and record.transaction == self._transaction
        if self._left <= 0 and not within:
            return False
        self.rows += record.rows
        self._left -= record.weight
        self._transaction = record.transaction
        return True


Given = Callable[[int, int, bytes], RecordRows]


def block_rows(partition: int, offset: int, commit: Commit) -> list[Row]:
    """Return a row for each block of a journal record, or one without any.

    Each block says where its messages came from: the loader may have to read one of them again.
    """
    for block in commit.blocks:
        block.source_topic, block.source_topic_id = commit.source_topic, commit.source_topic_id
    rows: list[Row] = [(partition, offset, b.SerializeToString()) for b in commit.blocks]
    return rows or [(partition, offset, None)]


class JournalPolling:
    """One consumer of the journal.

    Args:
        given: the rows of a journal record, from its partition, its offset and itself.
        began: by partition, 0 where it has none: positions that it is asked for behind this one
            lie right behind a record. None: not known.

    Raises (every method): Unavailable, Refused: no answer, or a no.
    """

    def __init__(
        self, kafka: Kafka, topic: str, given: Given, began: Mapping[int, int] | None = None
    ) -> None:
        self._topic, self._given, self._began = topic, given, began
        self._next: Positions = {}  # what comes next, of what waits or of the consumer
        self._waiting: defaultdict[int, deque[Message]] = defaultdict(deque)
        self._waiting_bytes = 0
        # The end of a partition is an event, at the last stable offset.
        config = kafka_clients.reader(kafka) | {"enable.partition.eof": True, "error_cb": _say}
        self._consumer = PartitionReader(config)

    def there(self, position: Positions, blocks: int) -> list[Row]:
        """Return the records available from `position` on, about `blocks` blocks at most.

        Raises:
            ContractBroken: the records at `position` are gone.
        """
        if self._next != position:
            self._assign(position)
        behind, batch = set(position), _Batch(blocks)
        self._poll_there(behind, position)
        while self._takes_oldest(batch):
            self._poll_there(behind, position)
        return batch.rows

    def _poll_there(self, behind: set[int], position: Positions) -> None:
        """Poll until a record of each partition waits that may have one; `behind` says which."""
        until = time.monotonic() + _THERE_SECONDS
        while not behind or self._lacks(behind):
            left = until - time.monotonic() if behind else 0
            message = self._consumer.poll(max(0.0, left))
            if message is None:
                if behind and time.monotonic() < until:
                    continue
                behind.clear()
                return
            until = time.monotonic() + _THERE_SECONDS
            partition = message.partition() or 0
            if self._ends(message, position):
                # Perhaps of a while ago: as long as nobody asks, ends and records queue up in
                # turn, and one end after another must not make as many small batches.
                behind.discard(partition)
            elif message.error() is None:
                behind.add(partition)
                self._wait(message)

    def up_to(
        self, position: Positions, until: Positions, blocks: int | None, *, whole: bool = False
    ) -> list[Row]:
        """Read the records up to these offsets, and none beyond.

        `until`: offsets to read up to; `blocks`: about how many at most; None: all; `whole`: all
        was read before, so no partition may end earlier.

        Raises:
            ContractBroken: as `there`.
            Unavailable: no answer for ANSWER_SECONDS.
        """
        self._assign(position)
        batch = _Batch(math.inf if blocks is None else blocks)
        open_ = {p for p in position if position[p] < until.get(p, 0)}
        self._poll_open(open_, position, until, whole=whole)
        while self._takes_oldest(batch):
            self._poll_open(open_, position, until, whole=whole)
        self._next = {}  # it may be beyond `until`
        return batch.rows

    def _poll_open(
        self, open_: set[int], position: Positions, until: Positions, *, whole: bool
    ) -> None:
        """Poll until a record of each open partition waits; close those that are read."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while self._lacks(open_):
            message = self._consumer.poll(1.0)
            if message is None:
                if time.monotonic() > deadline:
                    raise Unavailable(
                        f"{self._topic}: the brokers did not answer for {ANSWER_SECONDS:g} s",
                        "Check kafka.bootstrap, and that the brokers run.",
                    )
                continue
            partition, offset = message.partition() or 0, message.offset() or 0
            if self._ends(message, position):
                if not whole or offset >= until.get(partition, 0):
                    open_.discard(partition)
                continue
            if message.error() is not None:
                continue
            deadline = time.monotonic() + ANSWER_SECONDS
            if offset >= until.get(partition, 0):
                open_.discard(partition)
            else:
                self._wait(message)

    def rest(self) -> None:
        """Pause until the next call: at the end of a partition a consumer keeps fetching."""
        self._consumer.unassign()
        self._next = {}
        self._let_go()

    def close(self) -> None:
        """End the consumer."""
        self._consumer.close()

    def partitions(self) -> list[int]:
        """Return the partitions of the journal.

        A broker that has not heard of the topic yet shows none: nothing would be left to compare
        with what the ledger says.
        """
        what = f"describe {self._topic}"
        with self._described():
            metadata = self._consumer.list_topics(self._topic, timeout=ANSWER_SECONDS)
        described = metadata.topics[self._topic]
        error = described.error
        if error is not None and error.code() in REFUSED:
            raise self._error(what, error)
        if error is not None or not described.partitions:
            raise Unavailable(
                f"{what}: {'no partitions' if error is None else error.str()}",
                "Wait: a broker may hear of a topic later than others. If it stays so, check "
                "kafka.bootstrap, and that the topic is there.",
            )
        return sorted(described.partitions)

    def watermarks(self, partition: int) -> tuple[int, int]:
        """Return its first offset, and the one behind its last."""
        where = TopicPartition(self._topic, partition)
        with self._described():
            return self._consumer.get_watermark_offsets(where, timeout=ANSWER_SECONDS)

    def ends(self) -> Positions:
        """Return the end of each partition as it is now."""
        return {partition: self.watermarks(partition)[1] for partition in self.partitions()}

    @contextlib.contextmanager
    def _described(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise self._error(f"describe {self._topic}", error.args[0]) from error

    def _error(self, what: str, error: KafkaError) -> Unavailable | Refused:
        grant = f"grant Read on topic {self._topic} to the user of kafka.client"
        return answered(what, error, grant)

    def _lacks(self, partitions: Collection[int]) -> bool:
        """Whether a record of one of these is still to come, and there is room for it."""
        return self._waiting_bytes < _WAITING_BYTES and not all(
            self._waiting[partition] for partition in partitions
        )

    def _wait(self, message: Message) -> None:
        self._waiting[message.partition() or 0].append(message)
        self._waiting_bytes += len(message.value() or b"")

    def _takes_oldest(self, batch: _Batch) -> bool:
        """Move the oldest record that waits into the batch; return whether one was there and fits.

        Raises:
            ContractBroken: it is no journal record.
        """
        first = min(filter(None, self._waiting.values()), key=_written, default=None)
        if first is None:
            return False
        message = first[0]
        partition, offset, value = message.partition() or 0, message.offset() or 0, message.value()
        try:
            record = self._given(partition, offset, value or b"")
        except DecodeError as error:
            raise no_record(self._topic, partition, offset) from error
        if not batch.takes(record):
            return False
        first.popleft()
        self._waiting_bytes -= len(value or b"")
        self._next[partition] = offset + 1
        return True

    def _let_go(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0

    def _assign(self, position: Mapping[int, int]) -> None:
        self._let_go()
        self._consumer.assign([TopicPartition(self._topic, p, o) for p, o in position.items()])
        self._next = dict(position)

    def _ends(self, message: Message, position: Positions) -> bool:
        """Return whether a message marks the end of its partition; raise errors that matter."""
        error = message.error()
        if error is None:
            return False
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's name
            return True
        self._refuse(error, message.partition() or 0, position)
        return False

    def _refuse(self, error: KafkaError, partition: int, position: Positions) -> None:
        if error.code() in OUT_OF_RANGE:
            (low, high), at = self.watermarks(partition), position[partition]
            if self._began is not None and only_a_marker(at, low, self._began.get(partition, 0)):
                # Not by a seek, which the client refuses once it gave up a partition.
                self._consumer.incremental_unassign([TopicPartition(self._topic, partition)])
                self._consumer.incremental_assign([TopicPartition(self._topic, partition, low)])
                return
            if at < low:
                raise deleted_unread(self._topic, {partition: (at, low)})
            raise lost_end(self._topic, {partition: at}, {partition: (low, high)})
        if not error.retriable() and error.code() not in (
            KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
            KafkaError._TRANSPORT,  # noqa: SLF001
        ):
            raise self._error(f"read {self._topic}[{partition}]", error)


def _written(waiting: deque[Message]) -> tuple[int, int]:
    message = waiting[0]
    return message.timestamp()[1], message.partition() or 0


def _say(error: KafkaError) -> None:
    """Log an error of the consumer, which reconnects by itself."""
    log.in_child()
    say(f"journal: {error.str()}")
