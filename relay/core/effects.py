"""What the relay can ask for.

At most one effect of a step is answered by a further event, and it is the last:
so a failure never leaves later effects of the same step half done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from relay.core.offsets import CommittedOffset
from relay.core.records import Arrival, JournalEnd, JournalRecord
from relay.core.state import Seal
from relay.errors import RelayError

ONE_PROCESS = (
    "run one process per relay.member. If there is only one, its successor took over, or `relay "
    "rewind`, `relay accept` or `relay retire` did: start this one again when they are done"
)
"""The next step of a relay that was fenced."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Hold the messages of this arrival, but for the first `skip`, in the table's buffer."""

    arrival: Arrival
    skip: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget everything held for these partitions."""

    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class Seek:
    """Poll this partition from `offset` on."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Read:
    """Poll only these source partitions from now on; None: all that are owned.

    An assignment ends it, so nobody has to ask for all after one.
    """

    partitions: frozenset[int] | None


@dataclass(frozen=True, slots=True)
class Fence:
    """Take over the transactional id of each of these partitions; answered by PredecessorsFenced.

    Whoever committed under it before never will again, and what it left open is ended.
    """

    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class ReadTruth:
    """Read committed floor, journal record, topic id and bounds; answered by TruthRead.

    Attributes:
        ends: of these partitions, where predecessors were fenced by partition: the last visible
            record before a journal's end is where its partition stands.
    """

    partitions: frozenset[int]
    ends: Mapping[int, JournalEnd] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Begin:
    """Take the consumer group's metadata, then begin a transaction; answered by Begun.

    The source topic is looked at before: where it is not listed, nothing is begun, and the answer
    is SourceUnseen.

    Attributes:
        tables: whose buffers it will seal; their row messages have to be known first, their block
            topics to be there, and each partition where their blocks go to have a leader. Where
            that is not so now, nothing is begun, and the answer is TablesUndecided.
        partition: under whose transactional id; None: the member's.
    """

    tables: frozenset[str] = frozenset()
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Produce:
    """Turn the held messages into chunks and dead letters; answered by Produced."""

    seals: tuple[Seal, ...]


@dataclass(frozen=True, slots=True)
class WriteJournal:
    """Answered by JournalWritten."""

    records: tuple[JournalRecord, ...]


@dataclass(frozen=True, slots=True)
class SendOffsets:
    """Floors and metadata per partition into the transaction; answered by OffsetsSent."""

    offsets: Mapping[int, CommittedOffset]


@dataclass(frozen=True, slots=True)
class Commit:
    """Answered by Committed."""


@dataclass(frozen=True, slots=True)
class ShowOffsets:
    """Committed floors to the group in the source's cluster, for lag tools; nobody believes it."""

    offsets: Mapping[int, CommittedOffset]


@dataclass(frozen=True, slots=True)
class Abort:
    """Answered by Aborted."""


@dataclass(frozen=True, slots=True)
class Replace:
    """New producer, same transactional id, init_transactions; answered by Replaced.

    Where each partition has an id of its own the old producers are only let go: Fence follows.
    """

    why: str


@dataclass(frozen=True, slots=True)
class Exit:
    """Leave the group and end; `error` is None after a wanted stop."""

    error: RelayError | None


Effect = (
    Keep | Drop | Seek | Read | Fence | ReadTruth | Begin | Produce | WriteJournal | SendOffsets
    | Commit | ShowOffsets | Abort | Replace | Exit
)  # fmt: skip
