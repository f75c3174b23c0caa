"""What ClickHouse says of a table, and what follows for counting its rows. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from relay.clickhouse.removing_statements import removed_by
from relay.clickhouse.table_engine import TableEngine, has_ttl
from relay.clickhouse.table_keys import TableKeys

_LONGEST = 120
"""Characters of a statement that are shown."""


@dataclass(frozen=True, slots=True)
class Removal:
    """Rows of a table were removed, or may have been, by something that the server recorded.

    Attributes:
        at_ms: Unix time by the server's clock.
        text: what it was.
        blocks: ids of the only blocks that it can have touched; None: of any.
    """

    at_ms: int
    text: str
    blocks: frozenset[str] | None = None

    def touches(self, block: str) -> bool:
        """Return whether rows of the block may be among them."""
        return self.blocks is None or block in self.blocks


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table as the server describes it to relay.operate.verify.read.table_facts.

    Attributes:
        engine: system.tables.engine; empty: there is no such table.
        engine_full: with its TTL and settings.
        filtered: a row policy or filter hides rows from this user; None: it could not be asked.
        views: materialized views that an INSERT reaches directly.
        replicas: of the table; 1 where it is not replicated, None: it could not be asked.
        removals: recorded, in order of time.
        acknowledged: a person said that rows of it were removed.
        keys: by which it tells rows apart.
        forgotten_ms: Unix time of the oldest mutation that is still shown, where others were before
            it that no record has, and that may have removed rows; 0: there were none.
    """

    engine: str = ""
    engine_full: str = ""
    create: str = ""
    filtered: bool | None = False
    views: tuple[str, ...] = ()
    replicas: int | None = 1
    removals: tuple[Removal, ...] = ()
    acknowledged: bool = False
    keys: TableKeys = field(default_factory=TableKeys)
    forgotten_ms: int = 0

    @property
    def definition(self) -> TableEngine:
        """The engine with its clauses, to be read."""
        return TableEngine(self.engine, self.engine_full)

    @property
    def keeps_repeats(self) -> bool:
        """Whether rows that come twice are in the table twice, or change what it says.

        ReplacingMergeTree with a version column takes the same rows again without a change, but
        not where the server makes keys or version of what a message left out: no loader inserts
        those again.
        """
        version = self.definition.version
        return not version or self.keys.vary(version)

    def hides(self, block_column: str) -> Iterator[str]:
        """Yield each reason for which a row once inserted may not be counted any more."""
        definition = self.definition
        if not self.engine:
            yield "the table does not exist now, or this user may not see it"
        elif not definition.is_merge_tree:
            yield f"engine {self.engine} does not keep every row, or shows it late"
        elif definition.merges_rows:
            yield f"engine {self.engine} merges rows into others"
        yield from (f"TTL {rule} deletes rows" for rule in definition.deleting_ttls())
        if has_ttl(self.create, block_column):
            yield f"column {block_column} has a TTL, which empties it"
        if self.acknowledged:
            yield "rows were removed on purpose (--removed)"
        if self.filtered:
            yield "a row policy or filter hides rows from this user"


def removal(
    at_ms: int,
    text: str,
    block_column: str,
    mutation: str = "",
    *,
    ttl_only_moves: bool = False,
) -> Removal | None:
    """Return what a recorded statement or mutation removed; None where it removes no rows.

    The text is that of a statement, or, with a `mutation`'s name, of that mutation's command.
    """
    removed = list(removed_by(text, block_column, ttl_only_moves=ttl_only_moves))
    if not removed:
        return None
    words = " ".join(text.split())
    shown = words if len(words) <= _LONGEST else f"{words[:_LONGEST]} …"
    by = f"mutation {mutation} " if mutation else ""
    named = [blocks for blocks in removed if blocks is not None]
    only = frozenset().union(*named) if len(named) == len(removed) else None
    return Removal(at_ms, f"{by}{shown}", only)
