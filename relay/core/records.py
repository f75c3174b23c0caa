"""What events and effects speak of: messages that arrived, blocks, journal records, found truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relay.core.offsets import UNKNOWN_EPOCH, CommittedOffset
from relay.core.state import Buffer, Seal


@dataclass(frozen=True, slots=True)
class TableMark:
    """Messages of `table` before `offset` are in blocks or dead letters."""

    table: str
    offset: int


@dataclass(frozen=True, slots=True)
class ChunkShare:
    """Which part of a chunk is a block's; `Share` in records.proto."""

    partition: int
    first: str
    first_row: int


@dataclass(frozen=True, slots=True)
class SealedBlock:
    """What became of a seal whose buffer held at least one good row.

    Attributes:
        share: where its chunk holds rows of other blocks of the transaction as well: offsets and
            checksum are those of the whole chunk, rows and messages are the block's own.
        decoded_bytes: of the rows as columns, without what texts and lists hold; with it where
            lists hold tuples.
    """

    topic: str
    first_offset: int
    next_offset: int
    chunks: int
    messages: int
    rows: int
    row_bytes: int
    crc32c: int
    schema_version: int
    share: ChunkShare | None = None
    decoded_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SealResult:
    """Outcome of one seal: a block, dead letters, or both.

    Attributes:
        seal: with as much of its buffer as went in.
        dead_reason, dead_kind: of the first dead letter; the kind as its header has it.
        left: what of the buffer did not go in, because the block would be too large; None: all did.
    """

    seal: Seal
    block: SealedBlock | None
    dead_messages: int = 0
    dead_reason: str = ""
    dead_kind: str = ""
    left: Buffer | None = None


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """One source partition's part of a transaction; `Commit` in records.proto.

    Attributes:
        rewinding: a person began to rewind the partition, and the old rows are not dealt with yet.
        source_partitions: of the source, when its writer took the partition over; 0: an older
            version wrote it.
        appended_at_ms: its Unix time in the topic, by which retention goes; 0: not read there.
        source_topic: name of the topic that was read; empty: not read in the journal, where its
            writer's stands.
    """

    partition: int
    source_topic_id: str
    epoch: int
    n: int
    previous_floor: int
    floor: int
    position: int
    marks: tuple[TableMark, ...]
    results: tuple[SealResult, ...]
    reference: int
    count: int
    flush_point: bool
    rewinding: bool = False
    source_partitions: int = 0
    appended_at_ms: int = 0
    source_topic: str = ""


@dataclass(frozen=True, slots=True)
class JournalEnd:
    """Where a source partition's journal ends, now that nobody else can commit there.

    Attributes:
        offset: all before it is decided, or will be without a new record among it.
        shown: the offset of the group in another cluster, read before predecessors were fenced; it
            may be old, and is never ahead of the journal. A later one may be a successor's.
        leader_epoch: of the source, committed with it.
    """

    offset: int
    shown: CommittedOffset | None = None
    leader_epoch: int = UNKNOWN_EPOCH


@dataclass(frozen=True, slots=True)
class PartitionTruth:
    """What the brokers say of one source partition at take-over.

    Attributes:
        committed: None where the group has no offset for it.
        record: the journal record at `committed.journal_offset`; None where there is none.
        later_records: visible journal records behind it, and the last of them.
        start_offset: where a partition never committed begins; None: nobody chose.
        leader_epoch: committed with the floor, of its last record or of one behind it; the
            client compares it with the leader's log before it reads on.
        shown: as JournalEnd's; None where the group's offset is the truth itself.
        journal_topic_id: asked for where `committed` is None; empty elsewhere.
        source_partitions: of the source.
        lost_end: where the source's log ends for `leader_epoch`, if that is before a mark which was
            read under it; None: it is not, or nobody had to ask.
        source_topic: its name, as it is set now.
    """

    partition: int
    committed: CommittedOffset | None
    record: JournalRecord | None
    later_records: int
    source_topic_id: str
    log_start: int
    log_end: int
    start_offset: int | None
    last_record: JournalRecord | None = None
    leader_epoch: int = UNKNOWN_EPOCH
    shown: CommittedOffset | None = None
    journal_topic_id: str = ""
    source_partitions: int = 0
    lost_end: int | None = None
    source_topic: str = ""


@dataclass(frozen=True, slots=True)
class Arrival:
    """Messages of one table from one source partition out of one poll, ascending.

    Attributes:
        rows: in all of them, estimated: it only decides when a buffer is full.
        decoded: bytes of the rows as columns, estimated; 0 as long as the table is new here.
        beside: bytes of their keys and headers, which are kept for dead letters.
    """

    partition: int
    table: str
    offsets: Sequence[int]
    rows: int
    bytes: int
    first_timestamp_ms: int = 0
    decoded: int = 0
    beside: int = 0

    @property
    def memory(self) -> int:
        """Return bytes that are kept of them until they are in blocks."""
        return self.bytes + self.beside
