"""Spark's view of the journal: a streaming data source with one row per sealed block.

Receives journal records (read_committed, so never beyond the last stable offset), gives
rows (partition, offset, block) where `block` is a serialized Block; a record without
blocks gives one row without, so that the position moves. Spark's offsets are the
journal's: {"journal": topic id, "0": next offset, ...}. Never reads a block topic.

It runs in a process of its own that Spark starts; what it is told comes pickled inside
the class, so that no secret becomes part of a query plan.
"""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, TopicPartition
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from loader.clioptions import say
from relay import kafka_settings, log, names
from relay.errors import ContractBroken, Unavailable
from relay.failures import answered
from relay.reader import PartitionReader
from relay.records_pb2 import Commit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql.types import StructType

    from relay.settings import Settings

SCHEMA = "partition int, offset bigint, block binary"
JOURNAL = "journal"
"""Key of the topic id in Spark's offsets."""

_ANSWER_SECONDS = 30.0
"""For a broker to answer a bounded read."""

Offsets = dict[str, Any]
Row = tuple[int, int, bytes | None]


@dataclass(frozen=True)
class Start:
    """What the driver found out before it started the query.

    Attributes:
        settings: of the app.
        journal: id of the journal topic as it is now.
        positions: next journal offset by partition, from the ledger.
    """

    settings: Settings
    journal: str
    positions: Mapping[int, int]


class JournalReader(SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the journal with one consumer, kept between micro-batches."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._topic = names.journal_topic(start.settings.app)
        self._next: dict[int, int] = {}  # what the consumer would deliver next
        self._until: dict[int, int] | None = None  # with availableNow

    @functools.cached_property
    def _consumer(self) -> PartitionReader:
        config = kafka_settings.reader(self._start.settings.kafka)
        # The end of a partition is an event, at the last stable offset.
        return PartitionReader(config | {"enable.partition.eof": True, "error_cb": _say})

    def __getstate__(self) -> dict[str, Any]:
        """Spark sends copies to its workers; each makes a consumer of its own."""
        return {key: value for key, value in vars(self).items() if key != "_consumer"} | {
            "_next": {}
        }

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """Where a query without checkpoint begins: the ledger's position, else the start."""
        return self._offsets(self._beginnings())

    def ends(self) -> Offsets:
        """The journal's end as it is now."""
        return self._offsets({p: self._watermarks(p)[1] for p in self._partitions()})

    def rest(self) -> None:
        """Reads nothing until it is asked again: at its end a consumer asks all the time."""
        self._consumer.unassign()
        self._next = {}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remembers the journal's end as it is now."""
        self._until = {p: self._watermarks(p)[1] for p in self._partitions()}

    def read(self, start: Offsets) -> tuple[Iterator[Row], Offsets]:
        """Records from `start` on, until blocks_per_batch blocks or the end.

        Raises:
            ContractBroken: `start` belongs to another journal, or its records are gone.
            Unavailable: with availableNow, the broker does not answer.
        """
        position = self._positions(start)
        blocks = self._start.settings.loader.blocks_per_batch
        patience = 0.05 if self._until is None else _ANSWER_SECONDS
        rows = self._poll(position, blocks, patience, self._until)
        return iter(rows), self._offsets(_behind(position, rows))

    def readBetweenOffsets(self, start: Offsets, end: Offsets) -> Iterator[Row]:  # noqa: N802
        """The same records again, after a restart."""
        until = {int(p): int(offset) for p, offset in end.items() if p != JOURNAL}
        position = self._positions(start)
        rows = self._poll(position, None, _ANSWER_SECONDS, until)
        return iter(rows)

    def _positions(self, start: Offsets) -> dict[int, int]:
        """Spark's offsets, with partitions that are new; the later of them and the ledger's."""
        if start[JOURNAL] != self._start.journal:
            raise ContractBroken(
                f"the checkpoint belongs to journal {start[JOURNAL]}, the topic {self._topic} is "
                f"now {self._start.journal}: it was deleted and made anew",
                "Use a new app name; or, if every block of the old journal is loaded, remove the "
                "checkpoint directory and the app's position rows in the ledger.",
            )
        position = {int(p): int(offset) for p, offset in start.items() if p != JOURNAL}
        for partition, beginning in self._beginnings(known=position).items():
            position[partition] = max(position.get(partition, beginning), beginning)
        return position

    def _beginnings(self, known: Mapping[int, int] | None = None) -> dict[int, int]:
        ledger = self._start.positions
        known = known or {}
        return {
            p: ledger[p] if p in ledger else known[p] if p in known else self._watermarks(p)[0]
            for p in self._partitions()
        }

    def _poll(
        self, position: dict[int, int], blocks: int | None, patience: float, until: Any
    ) -> list[Row]:
        """Rows from `position` on.

        Args:
            position: next offset by partition.
            blocks: about how many at most; None: all up to `until`.
            patience: seconds without any answer until this ends.
            until: offsets to read up to (and not a record further); None: what is there.
        """
        self._seek(position)
        open_ = {p for p in position if until is None or position[p] < until.get(p, 0)}
        rows: list[Row] = []
        found, waited = 0, time.monotonic() + patience
        while open_ and (blocks is None or found < blocks):
            message = self._consumer.poll(min(patience, 1.0) if not rows or until else 0)
            if message is None:
                if time.monotonic() < waited:
                    continue
                if until is None:
                    break
                raise Unavailable(
                    f"{self._topic}: no answer for {patience:g} s", "Look after the brokers."
                )
            waited = time.monotonic() + patience
            partition, offset = message.partition() or 0, message.offset() or 0
            if (error := message.error()) is not None:
                if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's name
                    open_.discard(partition)
                else:
                    self._refuse(error, partition, position)
                continue
            if until is not None and offset >= until.get(partition, 0):
                open_.discard(partition)  # and the consumer is beyond: seek next time
                continue
            self._next[partition] = offset + 1
            sealed = Commit.FromString(message.value() or b"").blocks
            found += len(sealed)
            rows += [(partition, offset, block.SerializeToString()) for block in sealed]
            if not sealed:
                rows.append((partition, offset, None))
        return rows

    def _seek(self, position: dict[int, int]) -> None:
        if self._next != position or self._until is not None:
            self._consumer.assign([TopicPartition(self._topic, p, o) for p, o in position.items()])
            self._next = dict(position)

    def _refuse(self, error: KafkaError, partition: int, position: dict[int, int]) -> None:
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):  # noqa: SLF001
            low, high = self._watermarks(partition)
            raise ContractBroken(
                f"{self._topic}[{partition}] holds offsets {low} to {high}, the loader stands at "
                f"{position[partition]}: records were deleted before they were loaded, or the "
                "topic was made anew",
                "Find out which; what was deleted can only come from a re-run of the source.",
            )
        if not error.retriable() and error.code() not in (
            KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
            KafkaError._TRANSPORT,  # noqa: SLF001
        ):
            grant = f"grant Read on topic {self._topic} to the user of kafka.client"
            raise answered(f"read {self._topic}[{partition}]", error, grant)

    def _partitions(self) -> list[int]:
        metadata = self._consumer.list_topics(self._topic, timeout=_ANSWER_SECONDS)
        return sorted(metadata.topics[self._topic].partitions)

    def _watermarks(self, partition: int) -> tuple[int, int]:
        where = TopicPartition(self._topic, partition)
        low, high = self._consumer.get_watermark_offsets(where, timeout=_ANSWER_SECONDS)
        return low, high

    def _offsets(self, position: Mapping[int, int]) -> Offsets:
        return {JOURNAL: self._start.journal} | {str(p): position[p] for p in sorted(position)}


def _behind(position: Mapping[int, int], rows: list[Row]) -> dict[int, int]:
    """The position after the rows."""
    moved = dict(position)
    for partition, offset, _ in rows:
        moved[partition] = offset + 1
    return moved


def _say(error: KafkaError) -> None:
    """The consumer's own errors; it reconnects by itself."""
    log.in_child()
    say(f"journal: {error.str()}")


def source(start: Start) -> type[DataSource]:
    """The data source "journal" of one app, to be registered with Spark."""

    class Journal(DataSource):  # made here, so that Spark pickles it by value, `start` included
        @classmethod
        def name(cls) -> str:
            return "journal"

        def schema(self) -> str:
            return SCHEMA

        def simpleStreamReader(self, schema: StructType) -> JournalReader:  # noqa: ARG002, N802
            return JournalReader(start)

    return Journal
