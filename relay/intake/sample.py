"""Reads the newest messages of each partition of the source topic, without a group.

Receives settings and how many are wanted, gives them as a read_committed reader sees them now.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa
from confluent_kafka import KafkaException, TopicPartition

from relay.config import kafka_clients
from relay.config.settings import Settings
from relay.errors import Refused
from relay.intake.message_batch import TableHeaders
from relay.kafka import librdkafka
from relay.kafka.errors import answered
from relay.kafka.partition_reader import PartitionReader, records
from relay.rows.decode import decode
from relay.rows.row_bound import RowBound
from relay.rows.row_codec import RowCodec
from relay.schema.dead_reason import DeadReason

SECONDS = 30.0
"""For one answer, and for the next message to come."""


class SampledMessage(NamedTuple):
    """One of the source topic."""

    partition: int
    offset: int
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Range(NamedTuple):
    """Offsets of a partition, the last excluded."""

    first: int
    end: int


def shares(bounds: dict[int, Range], wanted: int) -> dict[int, Range]:
    """Return the newest `wanted` offsets, spread over the partitions; what one lacks others give.

    `bounds`: what each partition holds.
    """
    chosen: dict[int, Range] = {}
    remaining = wanted
    by_size = sorted(bounds.items(), key=lambda item: (item[1].end - item[1].first, item[0]))
    for served, (index, (first, end)) in enumerate(by_size):
        share = min(end - first, -(-remaining // (len(by_size) - served)))
        if share > 0:
            chosen[index] = Range(end - share, end)
            remaining -= share
    return chosen


def sample(settings: Settings, wanted: int) -> list[SampledMessage]:
    """Return up to `wanted` messages of the source topic, by partition and offset.

    Offsets without a message (markers, compacted, of aborted transactions) count as looked at.

    Raises:
        Unavailable: the brokers did not answer.
        Refused: they said no, or the topic is not there.
    """
    topic = settings.source.topic
    config = {**kafka_clients.reader(settings.source_kafka), "isolation.level": "read_committed"}
    try:
        with contextlib.closing(PartitionReader(config)) as reader:
            bounds = _bounds(reader, topic)
            return [
                message
                for index, chosen in sorted(shares(bounds, wanted).items())
                for message in _read(reader, topic, index, chosen)
            ]
    except KafkaException as error:
        grant = f"grant Read on topic {topic} to the user of the source's brokers"
        raise answered(f"read messages of {topic}", error.args[0], grant) from error


def by_table(messages: Iterable[SampledMessage]) -> dict[str, list[SampledMessage]]:
    """Return them by the table that each names, as relay.intake.message_batch reads it."""
    headers = TableHeaders()
    tables: defaultdict[str, list[SampledMessage]] = defaultdict(list)
    for message in messages:
        tables[headers.table(message.headers)].append(message)
    return tables


def judged(
    messages: list[SampledMessage], codec: RowCodec | DeadReason, settings: Settings
) -> list[tuple[SampledMessage, DeadReason | None]]:
    """Return each message of one table with why the relay would not take it; None: it would."""
    if isinstance(codec, DeadReason):
        return [(message, codec) for message in messages]
    values = pa.chunked_array([[message.value for message in messages]], pa.binary())
    source, done, bad = settings.source, 0, dict[int, DeadReason]()
    bound = RowBound(codec.row_bytes, settings.block.max_decoded_bytes)
    while done < len(messages):
        rest = values.slice(done)
        decoded = decode(rest, codec, source.framing, source.unknown_fields, bound)
        bad |= {done + dead.index: dead.reason for dead in decoded.bad}
        done = len(messages) - decoded.left
    return [(message, bad.get(index)) for index, message in enumerate(messages)]


def _bounds(reader: PartitionReader, topic: str) -> dict[int, Range]:
    metadata = reader.list_topics(topic, timeout=SECONDS).topics[topic]
    if metadata.error is not None:
        raise Refused(
            f"source topic {topic!r}: {metadata.error.str()}",
            "create it with `relay topic create`, or correct source.topic; relays only read it",
        )
    return {
        index: Range(*reader.get_watermark_offsets(TopicPartition(topic, index), SECONDS))
        for index in metadata.partitions
    }


def _read(reader: PartitionReader, topic: str, index: int, chosen: Range) -> list[SampledMessage]:
    start = TopicPartition(topic, index, chosen.first)
    return [
        SampledMessage(index, record.offset() or 0, record.value(), librdkafka.headers(record))
        for record in records(reader, start, chosen.end, SECONDS)
    ]
