"""The schema registry topic: which field numbers the row messages of all tables have.

Receives and gives `TableSchema` records. One record per version of a table; it
counts only if the version it is based on is the current one when it is read, so
that of two relays which propose at once the first in the topic wins, for every
reader alike. Never forgets a record that counted, never creates the topic.

Keys are unique (`table:version:random`): were it the table alone, compaction would
keep the last record of a table, and that may be the one that lost.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from google.protobuf.message import DecodeError

from relay import names
from relay.config import kafka_clients
from relay.config.settings import Kafka
from relay.errors import NUMBERS_LOST, ContractBroken, ErrorPage, Refused, Unavailable
from relay.kafka.errors import PASSING
from relay.kafka.partition_reader import PartitionReader
from relay.kafka.reconnect import Renewal
from relay.records_pb2 import TableSchema

ANSWER_SECONDS = 30.0
_END_SECONDS = 10.0  # a running relay polls and commits nothing meanwhile
NEW_TOPIC_SECONDS = 5.0
"""How long a topic that was just created may be unknown to the broker that is asked."""
_POLL_SECONDS = 0.5
_PAUSE_SECONDS = 0.1
_NO_TOPIC = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}  # noqa: SLF001
)

Versions = dict[str, dict[int, TableSchema]]
"""By table, then by version; the highest version is the current one."""


def fold(versions: Versions, record: TableSchema) -> None:
    """Add the topic's next record to the versions, if it counts.

    A record counts if it is based on the current version (0: none yet) and is the
    next one. The rule needs nothing but the order, so all readers agree.
    """
    current = max(versions.get(record.table, {}), default=0)
    if record.based_on == current and record.version == current + 1:
        versions.setdefault(record.table, {})[record.version] = record


class Registry:
    """Reads the topic from its beginning, once, and from then on what is new.

    Args:
        kafka: how to reach the brokers.
        app: whose registry.
        anew: whether it is filled on purpose, though it is empty and there are blocks.

    Raises (every method but those that say "as of the last `catch_up`"):
        Unavailable: the brokers did not answer within 30 s.
        Refused: they said no, or the topic is not there.
        ContractBroken: records are missing from the topic's beginning, all of them perhaps, or one
            is foreign.
    """

    def __init__(self, kafka: Kafka, app: str, *, anew: bool = False) -> None:
        self._kafka = kafka
        self._topic = names.schemas_topic(app)
        self._blocks = names.blocks_prefix(app)
        self._may_be_empty = anew
        self._versions: Versions = {}
        self._next = 0
        self._consumer: PartitionReader | None = None
        self._producer: Producer | None = None
        self._failed: KafkaError | None = None

    @property
    def versions(self) -> Versions:
        """All that count, as of the last `catch_up`."""
        return self._versions

    def tables(self) -> list[str]:
        """Return tables with a schema, as of the last `catch_up`, sorted."""
        return sorted(self._versions)

    def current(self, table: str) -> TableSchema | None:
        """Return the table's schema as of the last `catch_up`; None if it has none yet."""
        of_table = self._versions.get(table)
        return of_table[max(of_table)] if of_table else None

    def version(self, table: str, version: int) -> TableSchema | None:
        """Return one version of the table's schema, as of the last `catch_up`."""
        return self._versions.get(table, {}).get(version)

    def catch_up(self) -> None:
        """Read to the end that the topic has now."""
        deadline = time.monotonic() + ANSWER_SECONDS
        grace = time.monotonic() + NEW_TOPIC_SECONDS
        while True:
            try:
                return self._read_on(deadline)
            except KafkaException as error:
                self._drop_consumer()
                cause = error.args[0]
                # Nobody may know yet who leads a topic that was just made.
                if cause.code() not in _NO_TOPIC | PASSING or time.monotonic() > grace:
                    raise self._translated(cause, "read") from error
            time.sleep(_PAUSE_SECONDS)

    def propose(self, *schemas: TableSchema) -> list[TableSchema]:
        """Append schemas, read on, and return for each its table's schema that is current now.

        It is the proposed one, or the winner's: then evolve from that one again. Many go together:
        to write one and read on takes some 25 ms.
        """
        self.catch_up()  # also says at once that the topic is missing; a producer would wait
        self._append(schemas)
        self.catch_up()
        return [self._current_after(schema) for schema in schemas]

    def _append(self, schemas: Iterable[TableSchema]) -> None:
        if self._producer is None:
            client = kafka_clients.plain_producer(self._kafka)
            self._producer, self._renewal = Producer(client), Renewal(client)
        self._renewal.look(self._producer)
        self._failed = None
        try:
            for schema in schemas:
                record = TableSchema()
                record.CopyFrom(schema)
                record.written_at_ms = int(time.time() * 1000)
                self._producer.produce(
                    self._topic,
                    key=f"{record.table}:{record.version}:{uuid.uuid4()}",
                    value=record.SerializeToString(),
                    partition=0,
                    on_delivery=self._delivered,
                )
            unsent = self._producer.flush(ANSWER_SECONDS)
        except KafkaException as error:
            self._drop_producer()
            raise self._translated(error.args[0], "write to") from error
        if unsent:
            # It may be there or not; whoever reads the topic next sees which.
            self._drop_producer()
            raise Unavailable(
                f"{self._topic}: the brokers acknowledged nothing within {ANSWER_SECONDS:g} s",
                "check that the brokers are up",
            )
        if self._failed is not None:
            failed = self._failed
            self._drop_producer()
            raise self._translated(failed, "write to")

    def _current_after(self, schema: TableSchema) -> TableSchema:
        current = self.current(schema.table)
        if current is None:
            raise ContractBroken(
                f"{self._topic}: version {schema.version} of {schema.table} was acknowledged "
                "and the table still has no version at all",
                "check whether records of the topic were deleted",
            )
        return current

    def close(self) -> None:
        """Close the clients."""
        self._drop_consumer()
        self._drop_producer()

    def _read_on(self, deadline: float) -> None:
        if self._consumer is None:
            reader = kafka_clients.reader(self._kafka)
            self._consumer = PartitionReader({**reader, "enable.partition.eof": True})
        end = self._end(self._consumer)
        if self._next >= end:
            return
        self._consumer.assign([TopicPartition(self._topic, 0, self._next)])
        while self._next < end:
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"{self._topic}: only offsets up to {self._next} of {end} arrived within "
                    f"{ANSWER_SECONDS:g} s",
                    "check that the brokers are up",
                )
            self._take(self._consumer.poll(_POLL_SECONDS))
        # Assigned, it would have a fetch under way, and a broker answers one request of a
        # connection at a time: asked for its end then, the topic kept the relay waiting for up
        # to a second, and with it everything that was polled.
        self._consumer.unassign()

    def _end(self, consumer: PartitionReader) -> int:
        """The topic's end, after a check that its beginning is still there."""
        low, high = consumer.get_watermark_offsets(TopicPartition(self._topic, 0), _END_SECONDS)
        if low > 0 or high < self._next:
            raise ContractBroken(
                f"{self._topic} begins at offset {low} and ends at {high}, but it must begin "
                f"at 0 and was read to {self._next} already: records were deleted, so field "
                "numbers could be given twice",
                NUMBERS_LOST,
                page=ErrorPage.GAP,
            )
        if high == 0 and not self._may_be_empty:
            self._see_no_blocks(consumer)
        return int(high)

    def _see_no_blocks(self, consumer: PartitionReader) -> None:
        """See that the topic is empty because the app begins; a table is in it before its blocks.

        Raises:
            ContractBroken: it was made anew.
        """
        listed = consumer.list_topics(timeout=_END_SECONDS).topics
        for topic in sorted(name for name in listed if name.startswith(self._blocks)):
            for partition in listed[topic].partitions:
                place = TopicPartition(topic, partition)
                if consumer.get_watermark_offsets(place, _END_SECONDS)[1] == 0:
                    continue
                own = TopicPartition(self._topic, 0)
                if consumer.get_watermark_offsets(own, _END_SECONDS)[1] > 0:
                    return  # another process gave numbers meanwhile
                raise ContractBroken(
                    f"{self._topic} is empty, but {topic} holds blocks: the field numbers of all "
                    "tables are lost",
                    NUMBERS_LOST,
                    page=ErrorPage.GAP,
                )
        self._may_be_empty = True  # what comes is known

    def _take(self, message: Message | None) -> None:
        if message is None:
            return
        error = message.error()
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001
                raise KafkaException(error)
            # Offsets of markers and compacted records have no message; the end passes them.
            self._next = max(self._next, int(message.offset() or 0))
            return
        offset = int(message.offset() or 0)
        try:
            record = TableSchema.FromString(message.value() or b"")
        except DecodeError as cause:
            raise ContractBroken(
                f"{self._topic}, offset {offset}: the record is not a schema record ({cause})",
                "find out who writes to this topic; only relays of this app may",
            ) from cause
        fold(self._versions, record)
        self._next = offset + 1

    def _delivered(self, error: KafkaError | None, _: Any) -> None:
        self._failed = self._failed or error

    def _drop_consumer(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _drop_producer(self) -> None:
        if self._producer is not None:
            self._producer.purge()
            self._producer = None

    def _translated(self, error: KafkaError, doing: str) -> Unavailable | Refused:
        said = f"cannot {doing} {self._topic}: {error.str()} ({error.name()})"
        if error.code() in _NO_TOPIC:
            return Refused(
                f"schema registry topic {self._topic} does not exist",
                "start the relay of this app once, which creates the topic; or correct `app`",
            )
        # Negative: librdkafka's own, nobody answered.
        if error.retriable() or error.code() < 0 or error.code() in PASSING:
            return Unavailable(said, "check kafka.bootstrap and that the brokers are up")
        return Refused(said, f"grant Read and Write on topic {self._topic}, then start again")


def read_to_its_end(kafka: Kafka, app: str, *, anew: bool = False) -> Registry:
    """Return the registry as it is now, closed: what it knows stays.

    Args, Raises: as Registry.
    """
    with contextlib.closing(Registry(kafka, app, anew=anew)) as registry:
        registry.catch_up()
    return registry
