"""Decides whether rows that counting misses are an anomaly. Pure.

A row that is not there proves nothing where a TTL deletes, an engine merges, a policy hides, or
somebody removed rows after the block was inserted, or where the table had no block-id column then;
what cannot be judged is tallied, not forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from relay.clickhouse.table_engine import KEPT_SETTING
from relay.operate.verify.judge.acknowledgements import utc
from relay.operate.verify.judge.ledger_history import NOTHING, History
from relay.operate.verify.judge.server_records import SKEW_MS, Recorded
from relay.operate.verify.judge.table_facts import Removal, TableFacts
from relay.operate.verify.judge.tally import UnjudgedTally
from relay.records_pb2 import Block

_NONE = Recorded()


class Missing:
    """Rows of one table's blocks that were not counted.

    Args:
        facts: what the server says of the table.
        unasked: why the server's record of removals could not be asked; empty: it could.
        recorded: INSERTs of its blocks that the server recorded.
    """

    def __init__(
        self,
        table: str,
        facts: TableFacts,
        ledger: Mapping[str, History],
        block_column: str,
        unasked: str = "",
        recorded: Recorded = _NONE,
    ) -> None:
        self._table, self._facts, self._ledger, self._recorded = table, facts, ledger, recorded
        self._unasked = unasked
        self._bare = (
            f"loaded before the table had {block_column}: what is missing now is not judged by "
            "counting"
        )
        self.hidden_by = tuple(facts.hides(block_column))
        self.judges_extra = facts.keeps_repeats
        self.excused: set[str] = set()
        """Blocks of whose missing rows counting proves nothing: a removal may have taken them, or
        they are without their block's id."""
        self._blocks = self._rows = 0
        self._tally = UnjudgedTally(table)

    def explained(self, block: Block, rows: int, whole: int) -> bool:
        """Return whether so few rows of a loaded block prove nothing; counts it if so."""
        if self.hidden_by:
            self._blocks, self._rows = self._blocks + 1, self._rows + whole - rows
            return True
        if not (reason := self._reason(block, rows)):
            return False
        self._tally.add(reason, block.id, whole - rows)
        self.excused.add(block.id)
        return True

    def unexplained(self, block: Block) -> str:
        """Return what is known of removals that may have taken rows of a block."""
        begins = self._recorded.reach.since_ms
        if self._unasked:
            known = f"whether rows were removed is not known: {self._unasked}"
        elif removable_since_ms(block, self._ledger.get(block.id, NOTHING)) < begins:
            known = (
                "no removal of rows is recorded, but the server's logs begin after the block, at "
                f"{utc(begins)}, and would not show an earlier one"
            )
        else:
            known = "no removal of rows is recorded since then"
        return f"{known} (if you removed them, give --removed {self._table})"

    def _reason(self, block: Block, rows: int) -> str:
        history = self._ledger.get(block.id, NOTHING)
        if history.unstamped and rows >= self._carried(block.id, history):
            return self._bare
        removed = removed_since(block, history, self._facts.removals)
        if removed is not None:
            text = f"rows were removed at {utc(removed.at_ms)} ({removed.text})"
        elif removable_since_ms(block, history) <= self._facts.forgotten_ms:
            text = (
                "whether rows were removed is not known (system.mutations shows none from before "
                f"{utc(self._facts.forgotten_ms)}, by the setting {KEPT_SETTING})"
            )
        else:
            return ""
        return f"{text}: what is missing now is not judged"

    def _carried(self, block: str, history: History) -> int:
        """Rows that came with the block's id in any case, by the record: these can be counted."""
        if not history.stamped:
            return 0
        return sum(
            one.written[self._table].rows
            for one in self._recorded.statements
            if one.blocks == {block} and one.claim in history.stamped and self._table in one.written
        )

    def lines(self, *, counted: bool = True) -> Iterator[str]:
        """Yield what is not judged, and why; `counted`: the table has the block-id column."""
        why = "; ".join(self.hidden_by)
        if not counted:
            if not self._facts.definition.is_merge_tree:
                yield f"{self._table}: {why}: its rows are not judged"
        elif self.hidden_by:
            extra = "extra rows are" if self._facts.keeps_repeats else "nor are extra rows"
            now = f" ({self._blocks} blocks lack {self._rows} rows now)" if self._blocks else ""
            yield f"{self._table}: {why}: missing rows are not judged by counting{now}, {extra}"
        elif self._facts.filtered is None:
            yield (f"{self._table}: it is not known whether a row policy hides rows from this user")
        yield from self._tally.lines()


def removable_since_ms(block: Block, history: History) -> int:
    """Return the Unix ms before which nothing can have removed rows of the block.

    What was there before the block was formed, took nothing of it, whatever the ledger says.
    """
    return max(history.began_ms, block.sealed_at_ms - SKEW_MS)


def removed_since(block: Block, history: History, removals: tuple[Removal, ...]) -> Removal | None:
    """Return the latest removal that may have taken rows of the block after they were inserted."""
    since = removable_since_ms(block, history)
    return next(
        (one for one in reversed(removals) if one.at_ms >= since and one.touches(block.id)), None
    )
