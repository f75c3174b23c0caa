"""What can happen to the relay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from relay.core.records import Arrival, JournalEnd, PartitionTruth, SealResult


class Failure(Enum):
    """What the caller of a client must do about an error; relay.kafka classifies."""

    ABORT = auto()
    """The transaction cannot commit, and the broker says so: abort it."""
    UNKNOWN = auto()
    """The outcome is not known, or the producer is unusable: replace it, read the truth."""
    FENCED = auto()
    """Another process holds this identity."""
    REFUSED = auto()
    """Rights or topics are missing: no retry will help."""
    CREDENTIALS = auto()
    """The password or certificate is refused: no retry will help, until there is another one."""
    LEARNED = auto()
    """One table's topic or one message was refused; the caller knows now how to leave it out."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """The group gave these source partitions to this member."""

    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class Revoked:
    """These source partitions are going, or (lost) gone."""

    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class PredecessorsFenced:
    """Answer to Fence."""

    ends: Mapping[int, JournalEnd]


@dataclass(frozen=True, slots=True)
class TruthRead:
    """Answer to ReadTruth.

    Attributes:
        source_partitions: that the source has, as far as this relay has heard.
    """

    found: tuple[PartitionTruth, ...]
    now_ms: int
    source_partitions: int = 0


@dataclass(frozen=True, slots=True)
class Polled:
    """One poll, perhaps empty: `arrivals`, and per partition all offsets it returned.

    Attributes:
        full: it gave so much that the relay is taken to be behind (relay.process.loop.FULL).
        ends: where partitions that are polled ended when they were last fetched, as far as known;
            needed while the relay may be behind.
        read_to: the end of each partition that the reader came to: every message before it was
            given, in this poll or an earlier one.
    """

    now_ms: int
    arrivals: tuple[Arrival, ...] = ()
    offsets: Mapping[int, Sequence[int]] = field(default_factory=dict)
    full: bool = False
    ends: Mapping[int, int] = field(default_factory=dict)
    read_to: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SchemaChanged:
    """The row messages of these tables changed: seal what was read under the old ones."""

    tables: frozenset[str]


@dataclass(frozen=True, slots=True)
class StopRequested:
    """SIGTERM or SIGINT."""


@dataclass(frozen=True, slots=True)
class Begun:
    """Answer to Begin.

    Attributes:
        alone: of the tables that it will seal, those whose blocks the loader inserts one by one.
        source_topic_id: that the source had when all that it will seal was polled; empty: nobody
            asked.
    """

    alone: frozenset[str] = frozenset()
    source_topic_id: str = ""


@dataclass(frozen=True, slots=True)
class SourceUnseen:
    """Answer to Begin where nothing was begun: the brokers do not list the source topic now."""


@dataclass(frozen=True, slots=True)
class TablesUndecided:
    """Answer to Begin where nothing was begun, as a server is away that these tables need.

    Nobody knows whether ClickHouse has them, or nobody makes their block topics, or takes records
    where their blocks go.
    """

    tables: frozenset[str]


@dataclass(frozen=True, slots=True)
class TablesDecided:
    """These tables, which were held back, may be sealed now."""

    tables: frozenset[str]


@dataclass(frozen=True, slots=True)
class Produced:
    """Answer to Produce: every chunk and dead letter is acknowledged."""

    results: tuple[SealResult, ...]


@dataclass(frozen=True, slots=True)
class JournalWritten:
    """Answer to WriteJournal: offset of each partition's record."""

    offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class OffsetsSent:
    """Answer to SendOffsets."""


@dataclass(frozen=True, slots=True)
class Committed:
    """Answer to Commit.

    Attributes:
        clean: no transport error or timeout was seen since Begin.
        took_ms: since Begin.
    """

    clean: bool
    took_ms: int = 0


@dataclass(frozen=True, slots=True)
class Aborted:
    """Answer to Abort."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """Answer to Replace: the new producer's init_transactions has returned."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Answer to any effect that did not succeed.

    Attributes:
        dark: whether a partition that the relay writes takes no records; `why` names it.
        took_ms: since Begin, in a transaction.
    """

    kind: Failure
    why: str
    dark: bool = False
    took_ms: int = 0


Event = (
    Assigned | Revoked | PredecessorsFenced | TruthRead | Polled | SchemaChanged | StopRequested
    | Begun | SourceUnseen | TablesUndecided | TablesDecided | Produced | JournalWritten
    | OffsetsSent | Committed | Aborted | Replaced | Failed
)  # fmt: skip
