"""Can the rows that a rewind replaces be removed, and only they? Pure.

Receives what ClickHouse says of a table, gives the reasons why not, each with what a person can
say to it.
"""

# pure

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from relay.clickhouse.table_engine import TableEngine
from relay.operate.dead.replay_plan import ReplayMark
from relay.operate.rewind.plan import Course
from relay.operate.rewind.seals import Stretch
from relay.program.plural import several


@dataclass(frozen=True, slots=True)
class RewindConsent:
    """What the person said beforehand.

    Attributes:
        keep: tables whose old rows stay.
        despite_views: materialized views may count re-run rows again.
        despite_replays: dead letters of the stretch that were replayed may come twice.
    """

    keep: frozenset[str] = frozenset()
    despite_views: bool = False
    despite_replays: bool = False


@dataclass(frozen=True, slots=True)
class RerunTable:
    """A table as it is now.

    Attributes:
        there: whether it exists.
        engine: its name in system.tables.
        stamped: whether it has the block-id column.
        views: materialized views that an INSERT reaches.
        unstamped: ids of blocks that were claimed while the column was not there.
        rows: that carry an id, by block.
    """

    there: bool
    engine: str = ""
    stamped: bool = False
    views: tuple[str, ...] = ()
    unstamped: frozenset[str] = frozenset()
    rows: int = 0


def reasons(
    table: str, target: RerunTable, blocks: Collection[str], consent: RewindConsent, column: str
) -> Iterator[str]:
    """Yield why this table's old rows cannot simply be replaced; none: they can.

    Args:
        table: `database.table`.
        target: as it is.
        blocks: ids of its superseded blocks.
        consent: of the person.
        column: the block-id column's name.
    """
    if not target.there or not blocks:
        return
    if target.views and not consent.despite_views:
        yield (
            f"{table}: views {', '.join(target.views)} also processed its rows, and a rewind does "
            "not remove those; with --despite-views you say that you correct the views' tables "
            "yourself"
        )
    if table in consent.keep:
        return
    keep = f"--keep-rows {table} leaves the old rows in the table, beside those of the new blocks"
    if not target.stamped:
        yield f"{table} has no column {column}, so nothing says which of its rows are old; {keep}"
    elif not TableEngine(target.engine).is_merge_tree:
        yield (
            f"{table} has engine {target.engine}, from which the rows of one block cannot be "
            f"deleted; {keep}"
        )
    elif TableEngine(target.engine).merges_rows:
        yield f"{table} has engine {target.engine}, which merges rows of different blocks; {keep}"
    elif unstamped := sorted(target.unstamped & set(blocks)):
        yield (
            f"{table}: {several(len(unstamped), 'block')}, of which the first is {unstamped[0]}, "
            f"came before the table had column {column}; {keep}"
        )


def replayed(
    courses: Iterable[Course], replays: Collection[ReplayMark], consent: RewindConsent
) -> Iterator[str]:
    """Yield dead letters of superseded stretches whose messages were sent again since.

    Args:
        courses: of all partitions.
        replays: of every dead letter that was replayed.
        consent: of the person.
    """
    if consent.despite_replays:
        return
    for course in courses:
        again = sorted(
            mark.source.offset
            for mark in replays
            if mark.source.partition == course.partition
            and any(_holds(stretch, mark) for stretch in course.superseded)
        )
        if again:
            yield (
                f"source partition {course.partition}: "
                f"{several(len(again), 'dead letter was', 'dead letters were')} replayed, from "
                f"source offset {again[0]} on: if a message can become rows now, they would be "
                "loaded twice; with --despite-replays you say that they may"
            )


def _holds(stretch: Stretch, replay: ReplayMark) -> bool:
    """Return whether the message that was replayed may be one of this stretch.

    A letter of a loader is not in the journal: its message is one of a block that has none.
    """
    within = stretch.first <= replay.source.offset < stretch.next
    return within and (stretch.dead > 0 or stretch.table == replay.table)
