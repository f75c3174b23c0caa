"""What the server's own logs say of INSERTs: statements, the parts they wrote, their views. Pure.

relay.operate.verify.read.server_logs makes them of system.query_log, part_log and query_views_log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

SKEW_MS = 5_000
"""By how much the clocks of relay and ClickHouse may differ."""


@dataclass(frozen=True, slots=True)
class Written:
    """What one statement wrote into one table.

    Attributes:
        rows: of the parts that are new.
        tried: of these, and of parts that were dropped because their token was known.
        at_ms: Unix time of the first part.
    """

    rows: int
    tried: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class ViewRun:
    """What one statement did to one view.

    Attributes:
        done: it wrote what it had to.
        code: ClickHouse's error code, where it did not.
        there: there is a view of this name now.
    """

    done: bool
    code: int = 0
    there: bool = True
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Statement:
    """One INSERT of blocks.

    Attributes:
        blocks: ids that its log_comment names.
        at_ms: Unix time of its start.
        finished: the server recorded its success.
        code: of the error that ended it; 0: none is recorded.
        rows: that it wrote as the server says, those of views too.
        written: by table, as `database.table`.
        views: by view; None: the server keeps no such log.
        claim: that it was made under, as its log_comment says; empty: it does not.
    """

    blocks: frozenset[str]
    at_ms: int
    finished: bool
    code: int = 0
    rows: int = 0
    written: Mapping[str, Written] = field(default_factory=dict)
    views: Mapping[str, ViewRun] | None = None
    claim: str = ""

    @property
    def brought(self) -> int:
        """Rows that it brought to its own table, merged or not.

        Where the server keeps no log of views, those of views too.
        """
        return self.rows - sum(view.rows for view in (self.views or {}).values())


@dataclass(frozen=True, slots=True)
class Reach:
    """The time from which on, and up to which, the logs have every INSERT.

    Attributes:
        since_ms: their oldest entry; 0: not known.
        until_ms: their newest entry: later ones may not have been written down yet.
        up_since_ms: the server's start: one that is killed loses what was not written down yet.
        but: why an INSERT may be missing all the same; empty: it cannot.
    """

    since_ms: int = 0
    until_ms: int = 0
    up_since_ms: int = 0
    but: str = ""

    def doubt(self, sealed_ms: int, loaded_ms: int, *, marked_after_start: bool = False) -> str:
        """Return why the logs may lack an INSERT of a block; empty: they have every one.

        Args:
            sealed_ms: when the block was formed; no INSERT of it can be older.
            loaded_ms: when the ledger first had it as loaded.
            marked_after_start: enough where the block was marked after the server's start: the
                loader cannot have had the answer of an INSERT from before.
        """
        if self.but:
            return self.but
        begun = sealed_ms - SKEW_MS
        if begun < self.since_ms:
            return "the server's logs begin after the block was sealed"
        if begun < self.up_since_ms and not (marked_after_start and loaded_ms >= self.up_since_ms):
            return (
                "the server was restarted since then, and a killed server loses its newest log "
                "records"
            )
        if loaded_ms > self.until_ms:
            return "the server has not written its newest log records yet"
        return ""


NO_LOGS = "the server keeps no system.query_log or no system.part_log"


@dataclass(frozen=True, slots=True)
class Recorded:
    """All INSERTs of a table's blocks that the server recorded, in order of time."""

    statements: tuple[Statement, ...] = ()
    reach: Reach = Reach(but=NO_LOGS)


@dataclass(slots=True)
class StatementGroup:
    """Statements that share blocks, and these blocks."""

    blocks: set[str]
    statements: list[Statement]

    def written(self, table: str) -> list[Written]:
        """Return what they wrote into a table, in order of time."""
        writes = [insert.written[table] for insert in self.statements if table in insert.written]
        return sorted(writes, key=lambda written: written.at_ms)

    def tables(self) -> list[str]:
        """Return all that they wrote into."""
        return sorted({table for statement in self.statements for table in statement.written})

    def alike(self) -> bool:
        """Return whether every statement is of the same blocks."""
        return len({statement.blocks for statement in self.statements}) <= 1


def groups(statements: Iterable[Statement]) -> Iterator[StatementGroup]:
    """Return the statements in groups: two that name the same block are in the same group."""
    by_block: dict[str, StatementGroup] = {}
    for statement in statements:
        joined = StatementGroup(set(statement.blocks), [statement])
        joining = [by_block[name] for name in statement.blocks if name in by_block]
        for other in {id(group): group for group in joining}.values():
            joined.blocks |= other.blocks
            joined.statements = other.statements + joined.statements
        for name in joined.blocks:
            by_block[name] = joined
    yield from {id(group): group for group in by_block.values()}.values()
