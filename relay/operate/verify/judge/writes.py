"""Judges what the server recorded of each block's INSERTs against the block. Pure.

This needs no block-id column and no row that is still there: the parts that the statements wrote
are compared with the block, and so is what its views got.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from relay.operate.verify.judge.acknowledgements import utc
from relay.operate.verify.judge.anomaly import UnplacedAnomaly, gap, overlap
from relay.operate.verify.judge.ledger_history import NOTHING, History
from relay.operate.verify.judge.server_records import (
    Recorded,
    StatementGroup,
    ViewRun,
    Written,
    groups,
)
from relay.operate.verify.judge.table_facts import Removal, TableFacts
from relay.operate.verify.judge.tally import UnjudgedTally
from relay.records_pb2 import Block


@dataclass(frozen=True, slots=True)
class TableWrites:
    """All that is known of one table.

    Attributes:
        blocks: the journal's, by id, those that a rewind superseded too.
        live: ids of those that no rewind superseded.
        made: rows by block id, of blocks whose rows went through loader.transform.
        counted: rows by block id where counting proves something; else None.
        excused: ids of blocks that lack rows, and of which counting proves nothing.
    """

    name: str
    facts: TableFacts
    blocks: Mapping[str, Block]
    live: frozenset[str]
    ledger: Mapping[str, History]
    recorded: Recorded
    made: Mapping[str, int] = field(default_factory=dict)
    counted: Mapping[str, int] | None = None
    excused: Collection[str] = frozenset()

    def whole(self, block: str) -> int:
        """Return rows that the block brings."""
        return self.made.get(block, self.blocks[block].rows)

    def history(self, block: str) -> History:
        """Return what the ledger says of the block."""
        return self.ledger.get(block, NOTHING)


class _Lack(NamedTuple):
    """What the record lacks of some blocks; `of_any` is the same for blocks of any size."""

    text: str
    of_any: str


class Writes:
    """The judgement of one table."""

    def __init__(self, table: TableWrites) -> None:
        self._table = table
        self._tally = UnjudgedTally(table.name)

    def judge(self) -> Iterator[UnplacedAnomaly]:
        """Yield what the server's record shows to be doubled or lost."""
        seen: set[str] = set()
        for group in groups(self._table.recorded.statements):
            seen |= group.blocks
            if group.blocks <= self._table.blocks.keys():
                yield from self._doubled(group)
                if group.blocks <= self._table.live:
                    yield from self._lost(group)
        for block in sorted(self._table.live - seen):
            yield from self._lost(StatementGroup({block}, []))

    def lines(self) -> Iterator[str]:
        """Yield what is not judged, and why."""
        yield from self._tally.lines()

    def _doubled(self, group: StatementGroup) -> Iterator[UnplacedAnomaly]:
        """Judge whether new parts have more rows than the blocks, or than one statement brings."""
        for table in sorted(group.tables(), key=lambda one: (one != self._table.name, one)):
            written = group.written(table)
            rows, most = sum(one.rows for one in written), max(one.tried for one in written)
            limit = self._limit(group, most) if table == self._table.name else most
            if limit is None or rows <= limit or (table != self._table.name and not group.alike()):
                continue
            times = sum(one.rows > 0 for one in written)
            text = f"the server recorded {rows} rows in {times} INSERTs, but the block has {limit}"
            if table != self._table.name:
                text = (
                    f"{table} got {rows} of its rows in {times} INSERTs, although one brings "
                    f"{limit}"
                )
            if not self._excused(group, table, written, limit):
                yield overlap(f"{_named(group)}: {text}", self._partition(group))
            return  # a view that got rows twice when its table did is no second finding

    def _limit(self, group: StatementGroup, most: int) -> int | None:
        """Return how many rows the table may have got; None: any number is right."""
        if not self._table.facts.keeps_repeats:
            return None
        if self._table.facts.definition.merges_rows:  # merges rows of one INSERT already
            return most if group.alike() else None
        return sum(map(self._table.whole, group.blocks))

    def _excused(
        self, group: StatementGroup, table: str, written: list[Written], limit: int
    ) -> bool:
        """Return whether it was right to write again; tally it if so."""
        first, again = min(group.blocks), self._between(group, written, limit)
        if again is not None:
            knew = [self._table.history(block) for block in group.blocks]
            if any(0 < one.claimed_ms < again.at_ms and not one.asked for one in knew):
                return False  # the loader had it in its ledger, and nobody asked for it again
            text = f"inserted again after rows were removed at {utc(again.at_ms)} ({again.text})"
            self._tally.add(text, first)
            return True
        counted = self._table.counted
        if table != self._table.name or len(group.tables()) > 1 or counted is None:
            return False
        if any(self._table.history(block).unstamped for block in group.blocks):
            return False  # counting does not see all of their rows
        there = sum(counted.get(block, 0) for block in group.blocks)
        if there > sum(map(self._table.whole, group.blocks)):
            return False
        self._tally.add(
            "inserted more than once, but the rows are in the table only once now", first
        )
        return True

    def _between(self, group: StatementGroup, written: list[Written], limit: int) -> Removal | None:
        """Return the last removal between two INSERTs, if no span between has too many rows."""
        removals = [
            one
            for one in self._table.facts.removals
            if any(map(one.touches, group.blocks))
            and written[0].at_ms < one.at_ms < written[-1].at_ms
        ]
        begin = 0
        for end in [*(one.at_ms for one in removals), written[-1].at_ms + 1]:
            if sum(one.rows for one in written if begin <= one.at_ms < end) > limit:
                return None
            begin = end
        return removals[-1] if removals else None

    def _lost(self, group: StatementGroup) -> Iterator[UnplacedAnomaly]:
        """Judge what the record lacks of loaded blocks; tally what only a person calls so."""
        histories = {block: self._table.history(block) for block in group.blocks}
        if any(one.state != "loaded" for one in histories.values()):
            return
        said = {block for block, one in histories.items() if one.said}
        # With a tally of its own: what is not judged is told below, of the blocks that are left.
        lack = self._lacking(group, UnjudgedTally(self._table.name)) if said else None
        if lack:
            self._tally.add(f"{lack.of_any}: only a person says that it is loaded", min(said))
            group = StatementGroup(group.blocks - said, group.statements)
        lack = self._lacking(group, self._tally)
        if lack:
            text = f"{_named(group)} is loaded, but {lack.text}"
            yield gap(text, self._partition(group))

    def _lacking(self, group: StatementGroup, tally: UnjudgedTally) -> _Lack | None:
        """Return what lacks: parts have fewer rows than the blocks, or a view got none of them."""
        whole = sum(map(self._table.whole, group.blocks))
        written = group.written(self._table.name)
        rows = sum(one.rows for one in written)
        engine = self._table.facts.definition
        if not self._were_counted(group) and whole and engine.is_merge_tree:
            few = not self._came(group) if engine.merges_rows else rows < whole
            doubt = few and self._doubt(group)
            if few and not doubt:
                text = f"the server recorded {rows} rows of {whole}"
                return _Lack(text, "the server did not record all of its rows")
            if doubt:
                tally.add(f"{doubt}: only the ledger says that it is loaded", min(group.blocks))
        if self._table.facts.views and whole and (text := self._views(group, tally)):
            return _Lack(text, text)
        return None

    def _came(self, group: StatementGroup) -> bool:
        """Return whether an INSERT brought each block: as a part, or to be merged into nothing.

        With optimize_on_insert, the server's default, sums of zero and pairs that cancel make no
        part. The rows that an INSERT brought are counted before they are merged.
        """
        came: set[str] = set()
        for insert in group.statements:
            written = insert.written.get(self._table.name)
            whole = sum(map(self._table.whole, insert.blocks))
            if (written and written.tried) or (insert.finished and insert.brought >= whole):
                came |= insert.blocks
        return came >= {block for block in group.blocks if self._table.whole(block)}

    def _were_counted(self, group: StatementGroup) -> bool:
        """Return whether counting has judged all rows of the group."""
        return self._table.counted is not None and group.blocks.isdisjoint(self._table.excused)

    def _views(self, group: StatementGroup, tally: UnjudgedTally) -> str:
        """Return what a view behind the table lacks; empty: nothing is known to lack."""
        runs = [run.views for run in group.statements if run.views is not None]
        for view in sorted({name for run in runs for name in run}):
            of_view = [run[view] for run in runs if view in run]
            if any(run.done for run in of_view):
                continue
            if _taken_away(view, group):
                tally.add(
                    f"view {view} failed with error {of_view[-1].code}, and was dropped or "
                    "replaced since, or this user may not see it: what it lacks is not judged",
                    min(group.blocks),
                )
            else:
                return (
                    f"view {view} failed with error {of_view[-1].code} and no later INSERT "
                    "brought it the rows"
                )
        if any(run.finished and run.rows for run in group.statements):
            return ""
        behind = ", ".join(self._table.facts.views)
        doubt = self._doubt(group, marked_after_start=True)
        if doubt:
            tally.add(f"{doubt}: what {behind} got is not judged", min(group.blocks))
            return ""
        codes = sorted({run.code for run in group.statements if run.code})
        with_error = f" (error {', '.join(map(str, codes))})" if codes else ""
        return (
            f"the server recorded no finished INSERT of it{with_error}, so {behind} may lack its "
            "rows"
        )

    def _doubt(self, group: StatementGroup, *, marked_after_start: bool = False) -> str:
        doubts = (
            self._table.recorded.reach.doubt(
                self._table.blocks[block].sealed_at_ms,
                self._table.history(block).loaded_ms,
                marked_after_start=marked_after_start,
            )
            for block in group.blocks
        )
        return next(filter(None, doubts), "")

    def _partition(self, group: StatementGroup) -> int:
        partitions = {self._table.blocks[block].partition for block in group.blocks}
        return partitions.pop() if len(partitions) == 1 else -1


def _taken_away(view: str, group: StatementGroup) -> bool:
    """Return whether the view is gone, or was when a later INSERT reached the others."""
    last: ViewRun | None = None
    for insert in sorted(group.statements, key=lambda insert: insert.at_ms):
        if insert.views and (view in insert.views or (insert.finished and insert.rows)):
            last = insert.views.get(view)
    return last is None or not last.there


def _named(group: StatementGroup) -> str:
    if len(group.blocks) == 1:
        return f"block {min(group.blocks)}"
    return f"{len(group.blocks)} blocks in one INSERT, the first {min(group.blocks)}"
