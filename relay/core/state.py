"""What the relay knows: values only, replaced and never changed in place.

Offsets are half-open: `first_offset` is included, `next_offset` is one past the last.
Times are milliseconds that came in with an event (relay.program.monotonic); nothing here reads a
clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from relay.core.offsets import CommittedOffset

MAX_BUFFERS = 4096
"""Buffers of one source partition; a flood of invented table names forces a flush point."""


class Phase(Enum):
    """Where the process stands with its transaction."""

    READY = auto()
    """No transaction is open."""
    BEGINNING = auto()
    """Begin was asked for; group metadata is taken there."""
    PRODUCING = auto()
    """Chunks and dead letters are on their way."""
    JOURNALLING = auto()
    """All of those are acknowledged; journal records are on their way."""
    SENDING_OFFSETS = auto()
    """Journal offsets are known; floors go into the transaction."""
    COMMITTING = auto()
    """Everything is in the transaction; its end was asked for."""
    ABORTING = auto()
    """The transaction is to end without effect."""
    REPLACING = auto()
    """A new producer under the same transactional id ends whatever the old one left."""
    STOPPED = auto()
    """Nothing will be done any more."""


class Fencing(Enum):
    """What keeps a relay that lost a source partition without knowing it from committing."""

    GROUP = auto()
    """Floors go into the transaction under the group's generation: source and target are one
    cluster."""
    PARTITION = auto()
    """Each source partition has a transactional id of its own in the target cluster, which its
    owner takes over before it reads where to begin: the group is in another cluster."""


class SealReason(Enum):
    """Why a buffer became a block; stands in the journal."""

    BYTES = "bytes"
    ROWS = "rows"
    DECODED = "decoded"
    AGE = "age"
    SCHEMA = "schema"
    MEMORY = "memory"
    REREAD = "reread"
    FLUSH = "flush"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class SealingLimits:
    """When buffers are sealed; the names and units of relay.config.settings."""

    app: str
    max_bytes: int
    max_rows: int
    max_age_ms: int
    table_max_age_ms: Mapping[str, int]
    max_per_second: float
    commit_interval_ms: int
    max_buffer_bytes: int
    max_reread: int
    flush_point_interval_ms: int
    max_buffers: int = MAX_BUFFERS
    max_decoded_bytes: int = 64_000_000
    transaction_timeout_ms: int = 40_000
    keepalive_ms: int = 3_600_000
    """An idle partition is recorded again so often: retention must not delete the last record."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """Messages of one table from one source partition, not yet in any block.

    Attributes:
        decoded: bytes of its rows as columns, estimated: rows times what a row of the table takes,
            whatever it sets.
        beside: bytes of keys and headers, which fill memory and no block.
    """

    first_offset: int
    next_offset: int
    messages: int
    rows: int
    bytes: int
    opened_at_ms: int
    first_timestamp_ms: int
    decoded: int = 0
    beside: int = 0

    @property
    def memory(self) -> int:
        """Return bytes that are kept of its messages."""
        return self.bytes + self.beside


@dataclass(frozen=True, slots=True)
class Partition:
    """One source partition that this member owns.

    Attributes:
        floor: first offset not yet wholly in blocks; committed to the group.
        position: next source offset to poll; every message before it was polled.
        marks: per table, those above the floor.
        polled: ascending offsets of the messages from the floor to the position, in pieces.
        reference: the last flush point; `count` messages since it lie before the floor.
        recorded_at_ms: when its last journal record was written: as its topic says where this
            member took over, else by the time of events.
        fresh: nothing was ever committed; the first transaction records where it began.
        source_partitions: of the source, when it was taken over.
    """

    epoch: int
    n: int
    floor: int
    position: int
    source_topic_id: str
    reference: int
    count: int
    flushed_at_ms: int
    fresh: bool = False
    marks: Mapping[str, int] = field(default_factory=dict)
    buffers: Mapping[str, Buffer] = field(default_factory=dict)
    polled: tuple[Sequence[int], ...] = ()
    source_partitions: int = 0
    recorded_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Seal:
    """A buffer on its way to become a block."""

    partition: int
    table: str
    block_id: str
    reason: SealReason
    buffer: Buffer


@dataclass(frozen=True, slots=True)
class Transaction:
    """What the open transaction holds: the seals, and the partitions as they will be.

    Attributes:
        offsets: floors and the journal records that name them, once these are written.
        then: to follow at once, where each partition has a transaction of its own.
        cut: blocks of the first messages of a buffer, here and in those that it follows with no
            poll in between.
    """

    seals: tuple[Seal, ...]
    partitions: frozenset[int]
    after: Mapping[int, Partition] = field(default_factory=dict)
    offsets: Mapping[int, CommittedOffset] = field(default_factory=dict)
    then: tuple[Transaction, ...] = ()
    cut: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """How long and how much a source partition has been read now (relay.core.turns).

    Attributes:
        heard_ms: of its last poll with a message, or of the turn's begin.
    """

    begun_ms: int
    heard_ms: int
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Turns:
    """Who is polled while the relay is behind: those whose turn it is, and the drained.

    Attributes:
        reading: whose turn it is.
        waiting: whose turn comes, in order; not polled.
        drained: that had nothing left; bytes that came since they last had nothing left.
        at_a_time: how many have their turn at a time.
    """

    reading: Mapping[int, Turn]
    waiting: tuple[int, ...]
    drained: Mapping[int, int] = field(default_factory=dict)
    at_a_time: int = 1


@dataclass(frozen=True, slots=True)
class RelayState:
    """The whole relay process.

    Attributes:
        partitions: owned, with their truth known.
        pending: owned, while their committed truth is being read.
        source_partitions: that the source has, as far as this relay has heard.
        failures: producers replaced since the last committed transaction.
        most_bytes: in a transaction, once brokers were too slow for one; None: as many as are due.
        unpolled_ms: that transactions took since the last poll.
        full_since_ms: of the first of the last polls that were all full; None: the last was not.
        turns: of the source partitions, while only some are polled; None: all are.
        tokens: INSERTs' worth of blocks that may be sealed by age now (see relay.core.sealing).
        alone: tables, as far as they were sealed, whose blocks the loader inserts one by one.
        schema_changed: tables whose buffers have to be sealed next.
        held: tables whose buffers are not sealed until it is known whether ClickHouse has them, and
            until brokers have their block topics and take records where their blocks go.
        stalled: partitions that are not polled because of what they hold of these.
    """

    limits: SealingLimits
    fencing: Fencing = Fencing.GROUP
    phase: Phase = Phase.READY
    partitions: Mapping[int, Partition] = field(default_factory=dict)
    pending: frozenset[int] = frozenset()
    source_partitions: int = 0
    transaction: Transaction | None = None
    now_ms: int = 0
    committed_at_ms: int = 0
    full_since_ms: int | None = None
    turns: Turns | None = None
    tokens: float = 0.0
    alone: frozenset[str] = frozenset()
    failures: int = 0
    most_bytes: int | None = None
    unpolled_ms: int = 0
    stopping: bool = False
    schema_changed: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()
    stalled: frozenset[int] = frozenset()

    @property
    def reading(self) -> frozenset[int]:
        """Partitions that are polled now."""
        if self.turns is None:
            return frozenset(self.partitions) - self.stalled
        return frozenset((*self.turns.reading, *self.turns.drained)) - self.stalled
