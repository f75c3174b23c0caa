"""An app with a past: a journal, a ledger and committed offsets of as many blocks as one likes.

Receives a configuration file and a number, writes what relay and loader would have left behind
(tests.verify.laps: records of the relay's real core, lap after lap), gives how much it is. Every
block is loaded, as the ledger says, and nothing is left to do, so block topics are not needed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from loader.clickhouse.ledger import Ledger
from loader.core.entries import NewEntry
from loader.core.plan import Entry
from loader.journal import startup
from relay import names
from relay.config import settings_file
from relay.config.settings import Settings
from relay.core.offsets import CommittedOffset
from relay.records_pb2 import Block, Commit
from tests.bench import source as sources
from tests.bench.source import PARTITIONS
from tests.verify.histories import clean
from tests.verify.laps import laps

_LAP = 1_000  # records made by the core, for each partition; the rest are laps of them
_ENTRIES = 20_000  # ledger rows in one INSERT


@dataclass(slots=True)
class Past:
    """What was written, over all partitions.

    Attributes:
        messages: of the source that are in blocks already.
    """

    blocks: int = 0
    records: int = 0
    messages: int = 0


def write(file: Path, blocks: int) -> Past:
    """The past of the file's app, of at least so many blocks; makes its source and journal.

    Raises:
        Unavailable: broker or endpoint did not take it.
    """
    settings = settings_file.load(file)
    bootstrap, topic = settings.kafka.bootstrap, names.journal_topic(settings.app)
    sources.create_topics(bootstrap, [settings.source.topic, topic])
    source_id = startup.topic_id(settings, settings.source.topic)
    ledger = startup.ledger_of(settings, make=True)
    lost: list[str] = []
    producer = sources.make_producer(bootstrap, lost)
    past, heads, ends = Past(), [], {}
    for partition in range(PARTITIONS):
        written: list[Block] = []
        records = 0
        for commit in _records(settings.app, partition, source_id, -(-blocks // PARTITIONS)):
            sources.produce(producer, topic, partition, commit.SerializeToString(), [])
            written += commit.blocks
            records += 1
        for _ in range(commit.floor):
            sources.produce(producer, settings.source.topic, partition, b"", [])
        entry = CommittedOffset(commit.floor, commit.n, records - 1)
        heads.append(
            TopicPartition(settings.source.topic, partition, commit.floor, metadata=entry.metadata)
        )
        ends[partition] = records
        _loaded(ledger, written)
        past.blocks += len(written)
        past.records += records
        past.messages += commit.floor
    sources.flush(producer, topic, lost)
    ledger.save_positions(startup.topic_id(settings, topic), ends)
    _commit(settings, heads)
    return past


def _records(app: str, partition: int, source_id: str, blocks: int) -> Iterator[Commit]:
    """Up to the first flush point, where every buffer is empty, behind so many blocks."""
    done = 0
    for commit in laps(clean(partition, _LAP), sys.maxsize):
        commit.app, commit.source_topic_id, commit.partition = app, source_id, partition
        for block in commit.blocks:
            _, table, _, epoch, first = block.id.split(":")
            block.id = f"{app}:{table}:{partition}:{epoch}:{first}"
            block.partition, block.topic = partition, names.blocks_topic(app, table)
        done += len(commit.blocks)
        yield commit
        if commit.flush_point and done >= blocks:
            return


def _loaded(ledger: Ledger, blocks: list[Block]) -> None:
    """Two rows for each, as a loader writes them."""
    for first in range(0, len(blocks), _ENTRIES // 2):
        some = blocks[first : first + _ENTRIES // 2]
        for state in ("prepared", "loaded"):
            ledger.write([NewEntry(b, Entry(state, 1, "bench", rows=b.rows)) for b in some])


def _commit(settings: Settings, heads: list[TopicPartition]) -> None:
    consumer = Consumer({
        "bootstrap.servers": settings.kafka.bootstrap,
        "group.id": names.group_id(settings.app),
    })  # fmt: skip
    try:
        consumer.commit(offsets=heads, asynchronous=False)
    finally:
        consumer.close()
