"""Spark's view of the journal: a streaming data source with one row per sealed block.

Receives journal records (read_committed, so never beyond the last stable offset), gives
rows (partition, offset, block) where `block` is a serialized Block; a record without
blocks gives one row without, so that the position moves. Spark's offsets are the
journal's: {"journal": topic id, "0": next offset, ...}. Never reads a block topic.

It runs in a process of its own that Spark starts; its arguments come pickled inside
the class, so that no secret becomes part of a query plan.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from loader.core.block_size import rows_size
from loader.journal.reader import JournalPolling, RecordRows, block_rows
from loader.spark_child import end_with_spark
from relay import log, names
from relay.errors import ContractBroken, ErrorPage, Unavailable
from relay.records_pb2 import Commit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql.types import StructType

    from loader.core.positions import Unsure
    from loader.journal.reader import Row
    from relay.config.settings import Settings
    from relay.records_pb2 import Block

WHOLE_BYTES = 1 << 20
"""A block with so many bytes of rows (loader.core.block_size) counts as one of a batch."""
LEAST_WEIGHT = 1 / 8
"""What a block counts at least. A loader that is behind sees 2 048 small blocks at a time, so each
table of hundreds several times, and its INSERTs become fewer and larger."""
SCHEMA = "partition int, offset bigint, block binary"
JOURNAL = "journal"
"""Key of the topic id in Spark's offsets."""

Offsets = dict[str, Any]


@dataclass(frozen=True)
class Start:
    """What the driver found out before it started the query.

    Attributes:
        settings: of the app.
        journal: id of the journal topic as it is now.
        positions: next journal offset by partition, from the ledger.
        unsure: by partition, before which offset the ledger may lack entries.
        began: by partition: a position behind this one was saved when a record was settled.
    """

    settings: Settings
    journal: str
    positions: Mapping[int, int]
    unsure: Mapping[int, Unsure] = field(default_factory=dict)
    began: Mapping[int, int] = field(default_factory=dict)


class JournalReader(SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):
    """Read the journal with one consumer, kept between micro-batches."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._topic = names.journal_topic(start.settings.app)
        self._until: dict[int, int] | None = None  # with availableNow

    @functools.cached_property
    def _polling(self) -> JournalPolling:
        start = self._start
        return JournalPolling(start.settings.kafka, self._topic, _given, start.began)

    def __getstate__(self) -> dict[str, Any]:
        """Spark sends copies to its workers; each makes a consumer of its own."""
        return {key: value for key, value in vars(self).items() if key != "_polling"}

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """Return the start of a query without checkpoint: the ledger's position, else the first."""
        return self._offsets(self._beginnings())

    def ends(self) -> Offsets:
        """Return the journal's end as it is now."""
        return self._offsets(self._polling.ends())

    def rest(self) -> None:
        """Pause until the next call: at the end of a partition a consumer keeps fetching."""
        self._polling.rest()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember the journal's end as it is now."""
        self._until = self._polling.ends()

    def read(self, start: Offsets) -> tuple[Iterator[Row], Offsets]:
        """Return records from `start` on, until blocks_per_batch blocks or the end.

        Raises:
            ContractBroken: `start` belongs to another journal, or its records are gone.
            Unavailable: with availableNow, the broker does not answer.
        """
        position = self._positions(start)
        blocks = self._start.settings.loader.blocks_per_batch
        if self._until is None:
            rows = self._polling.there(position, blocks)
        else:
            rows = self._polling.up_to(position, self._until, blocks)
        ends = {partition: offset + 1 for partition, offset, _ in rows}
        return iter(rows), self._offsets({**position, **ends})

    def readBetweenOffsets(self, start: Offsets, end: Offsets) -> Iterator[Row]:  # noqa: N802
        """Return the same records again, after a restart."""
        until = {int(p): int(offset) for p, offset in end.items() if p != JOURNAL}
        return iter(self._polling.up_to(self._positions(start), until, None, whole=True))

    def _positions(self, start: Offsets) -> dict[int, int]:
        """Add new partitions to Spark's offsets; take the later of these and the ledger's.

        When the query began, no offset of Spark's was beyond the ledger's
        (loader.journal.begin_plan); later ones are, by what this query has settled since.
        """
        if start[JOURNAL] != self._start.journal:
            raise ContractBroken(
                f"the checkpoint belongs to journal {start[JOURNAL]}, but the topic {self._topic} "
                f"is now {self._start.journal}: it was deleted and created again",
                "Use a new app name; or, if every block of the old journal is loaded, remove the "
                "checkpoint directory and the app's position rows in the ledger.",
                page=ErrorPage.LEDGER,
            )
        position = {int(p): int(offset) for p, offset in start.items() if p != JOURNAL}
        try:
            beginnings = self._beginnings(known=position)
        except Unavailable:
            if self._until is not None:
                raise
            return position  # without brokers no partition is new, and nothing comes of the others
        for partition, beginning in beginnings.items():
            position[partition] = max(position.get(partition, beginning), beginning)
        return position

    def _beginnings(self, known: Mapping[int, int] | None = None) -> dict[int, int]:
        noted = {**(known or {}), **self._start.positions}
        partitions = self._polling.partitions()
        return {p: noted[p] if p in noted else self._first(p) for p in partitions}

    def _first(self, partition: int) -> int:
        """Return the first offset of a partition that is new, so that nobody noted a position."""
        low, high = self._polling.watermarks(partition)
        if low > 0:
            raise ContractBroken(
                f"{self._topic}[{partition}] holds offsets {low} to {high}, but the ledger has no "
                f"position there: the records before {low} were deleted before they were loaded",
                "Deleted blocks can only be loaded by running the source again. To continue with "
                "the records that are left, start once with `loader run CONFIG --once "
                "--ledger-lost`.",
                page=ErrorPage.GAP,
            )
        return low

    def _offsets(self, position: Mapping[int, int]) -> Offsets:
        return {JOURNAL: self._start.journal} | {str(p): position[p] for p in sorted(position)}


def _given(partition: int, offset: int, record: bytes) -> RecordRows:
    """Return the rows of a journal record."""
    commit = Commit.FromString(record)
    weight = sum(map(_weight, commit.blocks))
    is_dated = commit.blocks and commit.written_at_ms
    transaction = (commit.member, commit.written_at_ms) if is_dated else None
    return RecordRows(block_rows(partition, offset, commit), weight, transaction)


def _weight(block: Block) -> float:
    """Return the share of a batch for a block: a large one counts as one, a small one less.

    What a batch costs is INSERTs, and small blocks of a table go together in one.
    """
    return min(1.0, max(LEAST_WEIGHT, rows_size(block) / WHOLE_BYTES))


def source(start: Start) -> type[DataSource]:
    """Return the data source of one app, to be registered with Spark, which others may share."""

    class Journal(DataSource):  # made here, so that Spark pickles it by value, `start` included
        @classmethod
        def name(cls) -> str:
            return f"journal-{start.settings.app}"

        def schema(self) -> str:
            return SCHEMA

        def simpleStreamReader(self, schema: StructType) -> JournalReader:  # noqa: ARG002, N802
            sys.excepthook = end_with_spark
            log.in_child()
            return JournalReader(start)

    return Journal
