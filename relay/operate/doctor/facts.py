"""Holds what the doctor judges as plain values: adapters fill them, judges read them.

A value that could not be asked is None, and stands in `unasked` with the reason.
"""

# pure

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from relay.clickhouse.table_engine import TableEngine

Values = Mapping[str, str]
"""Names to values, as the server writes them."""


def number(values: Values | None, name: str) -> int | None:
    """Return the value of a setting; None: it is not known, or is no number."""
    text = (values or {}).get(name, "")
    return int(text) if text.lstrip("-").isdigit() else None


@dataclass(frozen=True, slots=True)
class Unasked:
    """A question that got no answer."""

    what: str
    reason: str
    mend: str = ""


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """How far another clock is ahead of ours (negative: behind), and how far off that may be."""

    ahead_seconds: float
    within_seconds: float


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that is there.

    Attributes:
        partitions: how many; 0: this user may not even look at it.
        replicas: of the partition that has the fewest.
        in_sync: replicas in sync of the partition that has the fewest.
        settings: in force, defaults included; None: could not be asked.
        granted: operations that this user may; None: the brokers do not say.
        topic_id: which a recreated topic of the same name does not have.
    """

    partitions: int
    replicas: int
    in_sync: int
    settings: Values | None
    granted: frozenset[str] | None
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class GroupFloor:
    """Where one source partition stands.

    Attributes:
        floor: committed; metadata: with it.
        journal_offset: that the metadata names; None: it is not the relay's.
        source_start: oldest offset of the source partition.
        journal_start: oldest offset of the journal's partition; None: there is no such partition.
    """

    floor: int
    metadata: str
    journal_offset: int | None
    source_start: int
    journal_start: int | None


@dataclass(frozen=True, slots=True)
class Trial:
    """The brokers' answer to a trial request: an error's name and text; empty: it would be done."""

    code: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class KafkaFacts:
    """The brokers, the app's topics, its group."""

    brokers: Mapping[int, Values | None]
    topics: Mapping[str, Topic]
    apis: Mapping[str, int] | None = None
    """Highest version of each request that every broker takes, by its name in the protocol."""
    group_granted: frozenset[str] | None = None
    transactions: Trial | None = None
    """init_transactions under an id that begins as the relay's do."""
    creation: Trial | None = None
    """Creating a topic whose name begins as the app's do, only validated."""
    heads: Mapping[int, GroupFloor] = field(default_factory=dict)
    journal: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """First offset and end of each of the journal's partitions, as far as they were asked."""
    numbers: int | None = None
    """Where the schema registry ends; None: it is not there, or was not asked."""
    absent: frozenset[str] = frozenset()
    """Topics of the app, and its source, that the brokers say are not there."""
    written: tuple[str, ...] = ()
    """Block topics that hold records; asked only where the registry is empty."""
    clock: ClockOffset | None = None
    unasked: tuple[Unasked, ...] = ()
    source_brokers: Mapping[int, Values | None] = field(default_factory=dict)
    """Those that have source and group, where these are in another cluster."""


@dataclass(frozen=True, slots=True)
class Replica:
    """What a Replicated table says of itself."""

    readonly: bool
    replicas: int
    active: int


@dataclass(frozen=True, slots=True)
class Tried:
    """What two INSERTs under one token left in tables of the doctor's own.

    Attributes:
        engine: of these tables.
        copies: of each row in the table; 1 is right, 0: they are not to be seen.
        behind: the same in a materialized view's table.
        values: settings in force for this user that decide, as the loader does not send them.
        problem: why it could not be tried; the rest means nothing then.
    """

    engine: str
    copies: float = 1.0
    behind: float = 1.0
    values: Values = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """A materialized view behind a table: its name (`database.view`), and what it selects.

    Attributes:
        into: the table that it writes to; None: not seen by this user.
        into_name: that table's name.
    """

    name: str
    select: str
    into: TargetFacts | None
    into_name: str


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """A table of ClickHouse.

    Attributes:
        engine, engine_full, partition_key: of system.tables.
        columns: name to (type, default kind); none: this user is not told them.
        partitions: active ones; None: could not be asked.
        replica: None where it is not replicated, or could not be asked.
        views: every view that an INSERT reaches, through views too.
        missing: rights that this user lacks on it.
        policies: row policies, or a filter, that hide rows from this user.
        create: the CREATE statement.
    """

    engine: str
    engine_full: str
    partition_key: str = ""
    columns: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    partitions: int | None = None
    replica: Replica | None = None
    views: tuple[View, ...] = ()
    missing: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    create: str = ""

    @property
    def table_engine(self) -> TableEngine:
        """The engine with its clauses."""
        return TableEngine(self.engine, self.engine_full)


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of ClickHouse in force for this user, and whether the user may not change it."""

    value: str
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class ClickHouseFacts:
    """The server, and the tables that the loader fills."""

    user: str
    settings: Mapping[str, Setting]
    windows: Mapping[str, Values]
    """Deduplication windows of tables without their own: of `merge_tree_settings` and
    `replicated_merge_tree_settings`."""
    tables: Mapping[str, TargetFacts | None]
    """By `database.table`; None: there is no such table."""
    unread: tuple[str, ...] = ()
    """Target tables of which the server does not say whether they are there."""
    others: tuple[str, ...] = ()
    """Names of all tables that the server shows, so that a misspelled one is told."""
    ledger: TargetFacts | None = None
    elsewhere: tuple[str, ...] | None = None
    """Where there is no ledger: databases whose ledgers have entries of the app; None: not asked,
    as this user would not see the app's own."""
    missing: tuple[tuple[str, str], ...] = ()
    """Rights beyond those on tables that the user lacks: (right, on what)."""
    evidence: tuple[tuple[str, str], ...] = ()
    """Those that the user lacks by which the loader knows what became of a block; it works without
    them."""
    clock: ClockOffset | None = None
    unasked: tuple[Unasked, ...] = ()
    version: str = ""
    """As the server gives it; empty: not asked."""
    tries: tuple[Tried, ...] = ()
    """Only where somebody wanted them."""
    servers: tuple[str, ...] = ()
    """That answered at one URL over several connections, at most two; more than one: a balancer."""
