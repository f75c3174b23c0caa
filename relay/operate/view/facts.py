"""What was read beside the journal, for `relay status`. Pure values."""

# pure

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from relay.operate.verify.judge.anomaly import Anomaly


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of the relay's consumer group."""

    name: str
    host: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """The relay's consumer group; "empty" or "dead" where no relay runs."""

    state: str
    members: tuple[GroupMember, ...] = ()


@dataclass(frozen=True, slots=True)
class ParkedBlock:
    """A block that waits for a person; or for its table, as the reason says then."""

    id: str
    table: str
    rows: int
    reason: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """What ClickHouse says.

    Attributes:
        problem: why nothing below is known; empty where it is.
        there: whether there is a ledger, which the loader makes when it first runs.
        lost: that there was one, and by what that is known; empty: nothing says so.
        states: of the blocks that were asked for, by id: prepared, loaded, aside, parked or
            discarded.
        counts: (table, state, blocks, rows), a block in its current state.
        parked: blocks that wait for a person or for their table, of each table those that wait
            longest; `counts` has all.
        settled_ms: when a block last got a state other than prepared; 0: none ever did.
    """

    problem: str = ""
    there: bool = False
    lost: str = ""
    states: Mapping[str, str] = field(default_factory=dict)
    counts: tuple[tuple[str, str, int, int], ...] = ()
    parked: tuple[ParkedBlock, ...] = ()
    settled_ms: int = 0


@dataclass(frozen=True, slots=True)
class HiddenMessages:
    """What lies behind an open transaction in a source partition: no relay can read it yet.

    Attributes:
        offsets: how many, markers included.
        since_ms: when the first of them was written, in Unix milliseconds; None: not known.
    """

    offsets: int
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StatusFacts:
    """Everything that was read beside the journal.

    Attributes:
        ends: last stable offset by source partition; empty where the source is not there.
        journal: whether there is one, which the relay makes when it first runs.
        unread_ms: when the oldest message was written that no relay has polled, by source
            partition, of those where it is known; 0 where there are only transactions' markers.
        acknowledged: rewinds and accepts among the records audited, oldest first.
        hidden: by source partition, where there is something beyond `ends`.
        silent: topic and partition of those whose leader gave no end, to why.
    """

    app: str
    source: str
    now_ms: int
    journal: bool
    group: ConsumerGroup
    ends: Mapping[int, int]
    ledger: LedgerFacts
    audited: int
    anomalies: tuple[Anomaly, ...] = ()
    acknowledged: tuple[str, ...] = ()
    unread_ms: Mapping[int, int] = field(default_factory=dict)
    hidden: Mapping[int, HiddenMessages] = field(default_factory=dict)
    silent: Mapping[tuple[str, int], str] = field(default_factory=dict)
