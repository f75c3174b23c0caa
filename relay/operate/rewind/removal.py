"""Judges whether the rows that a rewind replaces can be removed, and only they; pure.

Each reason against it says what a person can do, or say, about it.
"""

# pure

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from relay.clickhouse.quoting import readable, readable_name
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
        despite_replays: dead letters that were, or may have been, replayed may come twice.
        despite_missing: rows that no block id finds are deleted, and do not lack their id.
    """

    keep: frozenset[str] = frozenset()
    despite_views: bool = False
    despite_replays: bool = False
    despite_missing: bool = False


@dataclass(frozen=True, slots=True)
class RerunTable:
    """A table as it is now.

    Attributes:
        there: whether it exists.
        engine: its name in system.tables.
        stamped: whether it has the block-id column.
        views: materialized views that an INSERT reaches.
        unstamped: ids of blocks that were claimed while the column was not there.
        policies: row policies, or a filter, that hide rows of it from this user.
        grant: the statement that lets this user delete its rows; "": it may, or nobody knows.
        expires: whether the block-id column has a TTL, which empties it.
    """

    there: bool
    engine: str = ""
    stamped: bool = False
    views: tuple[str, ...] = ()
    unstamped: frozenset[str] = frozenset()
    policies: tuple[str, ...] = ()
    grant: str = ""
    expires: bool = False


@dataclass(frozen=True, slots=True)
class CountedRows:
    """What the ledger says of a table's superseded blocks, and what the table's rows say.

    Attributes:
        loaded: rows by block, of those that the ledger calls loaded.
        carried: rows by the block id that they carry.
        without: rows that carry no id of a block of this table.
    """

    loaded: Mapping[str, int] = field(default_factory=dict)
    carried: Mapping[str, int] = field(default_factory=dict)
    without: int = 0

    @property
    def missing(self) -> int:
        """How many of the loaded rows no id finds."""
        return sum(max(0, n - self.carried.get(block, 0)) for block, n in self.loaded.items())


@dataclass(frozen=True, slots=True)
class Replays:
    """The marks of dead letters that were replayed.

    Attributes:
        marks: those that still exist.
        deleted: what shows that others were deleted; empty: nothing does.
    """

    marks: Collection[ReplayMark]
    deleted: str = ""


def reasons(
    table: str, target: RerunTable, blocks: Collection[str], consent: RewindConsent, column: str
) -> Iterator[str]:
    """Yield why the rows of a table's superseded blocks cannot simply be replaced; none: they can.

    `column` is the name of the block-id column.
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
    if why := _unremovable(table, target, blocks, column):
        yield f"{why}; {_keep(table)}"
    elif target.grant:
        yield (
            f"{table}: this user may not delete its rows, and what is begun could not be finished: "
            f"{target.grant}; {_keep(table)}"
        )


def countable(
    table: str, target: RerunTable, blocks: Collection[str], consent: RewindConsent, column: str
) -> bool:
    """Return whether it matters which rows carry the blocks' ids."""
    if not target.there or not blocks or table in consent.keep or consent.despite_missing:
        return False
    return not _unremovable(table, target, blocks, column)


def without_id(table: str, counted: CountedRows, column: str) -> Iterator[str]:
    """Yield why old rows may be in the table that no block id finds; none: there are none.

    Fewer rows than were loaded are right where some were deleted or have expired. Then each row
    that is left carries an id, unless others insert into the table too.
    """
    missing, without = counted.missing, counted.without
    if missing and without:
        yield (
            f"{table}: of {several(sum(counted.loaded.values()), 'row')} that the ledger calls "
            f"loaded {several(missing, 'row')} cannot be found by the block id, and "
            f"{several(without, 'row')} of the table carry none in {column}. If these are rows "
            "that lost their id, a rewind would leave them beside the new ones: remove them "
            "yourself, all of them. If they are others, and the missing rows are deleted, "
            f"--despite-missing says so; {_keep(table)}"
        )


def _keep(table: str) -> str:
    return f"--keep-rows {table} leaves the old rows in the table, beside those of the new blocks"


def _unremovable(table: str, target: RerunTable, blocks: Collection[str], column: str) -> str:
    """Why the blocks' rows cannot be told from others, or not be deleted; "": they can."""
    if not target.stamped:
        return f"{table} has no column {column}, so nothing says which of its rows are old"
    engine = TableEngine(target.engine)
    if not engine.is_merge_tree:
        return (
            f"{table} has engine {target.engine}, from which the rows of one block cannot be "
            "deleted"
        )
    if engine.merges_rows:
        return f"{table} has engine {target.engine}, which merges rows of different blocks"
    if target.policies:
        return (
            f"{table}: {', '.join(target.policies)} hides rows from this user, and what it does "
            "not see it cannot remove: exempt it from that"
        )
    if unstamped := sorted(target.unstamped & set(blocks)):
        return (
            f"{table}: {several(len(unstamped), 'block')}, of which the first is {unstamped[0]}, "
            f"came before the table had column {column}"
        )
    if target.expires:
        return (
            f"{table}: column {column} has a TTL, so that rows lose the id of their block, also "
            f"while the rewind goes on: ALTER TABLE {readable(table)} MODIFY COLUMN "
            f"{readable_name(column)} REMOVE TTL"
        )
    return ""


def replayed(courses: Sequence[Course], replays: Replays) -> Iterator[str]:
    """Yield dead letters of superseded stretches whose messages were sent again since."""
    if courses and replays.deleted:
        yield (
            f"{replays.deleted}; with --despite-replays you say that those of which nobody knows, "
            "and those that this message names, may be loaded twice"
        )
    for course in courses:
        again = sorted(
            mark.source.offset
            for mark in replays.marks
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

    Every letter names the table of its stretch, whichever table its message was sent again for: a
    relay's has it from the buffer that was sealed, a loader's from the block. Only a mark of an
    earlier version does not say which it was. Then it may be any letter of a relay's that the
    stretch has, or one of a loader's, which is not in the journal.
    """
    if not stretch.first <= replay.source.offset < stretch.next:
        return False
    if replay.letter_table is not None:
        return stretch.table == replay.letter_table
    return stretch.dead > 0 or stretch.table == replay.table
