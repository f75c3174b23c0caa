"""Settles blocks that a rewind superseded, so that none is loaded any more; removes their rows.

Receives a rewind and its blocks, gives how many were settled and how many rows went. Every step may
be repeated: a block is settled through the same claims and conditions as by a run, so an INSERT
that is still under way is waited for and none can follow; only then are rows removed, by block id.
The ledger notes the rewind last: without that note no loader begins before it.

Another `relay rewind` may have ended the rewind meanwhile and left some of these blocks as they
are. So before each step that cannot be undone the caller's check of the journal is asked.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from clickhouse_connect.driver.exceptions import ClickHouseError

from loader.blocks.worker import Worker
from loader.clickhouse.client import failure
from loader.clickhouse.ledger import Ledger
from loader.clickhouse.tables import Tables
from loader.core import left_out
from loader.core.plan import FINAL
from loader.core.positions import superseded_row
from loader.journal.startup import topic_id
from relay import names
from relay.clickhouse.hidden_rows import exempt
from relay.clickhouse.quoting import literal, quoted, quoted_table
from relay.config.settings import Settings
from relay.errors import Refused, Unavailable
from relay.failpoints import reached
from relay.names import BlockId
from relay.program.plural import several
from relay.records_pb2 import Block, Commit

Check = Callable[[], None]
"""Raises where the rewind is not to be carried out any further."""
AT_ONCE = 500
"""Blocks whose ids go into one statement."""
_PAUSE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Settled:
    """What was done: blocks settled, rows removed, by this call alone."""

    blocks: int
    rows: int


@dataclass(frozen=True, slots=True)
class Rewound:
    """A rewind, as the journal has it.

    Attributes:
        record: of it.
        offset: of the record in the journal.
        first_epochs: by table, the epoch from which on the records of superseded blocks may be
            deleted; of a table that is not named the journal has them all.
    """

    record: Commit
    offset: int
    first_epochs: Mapping[str, int] = field(default_factory=dict)

    @property
    def starts(self) -> Mapping[str, int]:
        """The source offsets from which it superseded blocks, by table."""
        starts = {start.table: start.offset for start in self.record.rewind.starts}
        starts.pop(names.NO_TABLE, None)  # whose messages make no block
        return starts

    @property
    def why(self) -> str:
        """The rewind in words, for the ledger."""
        record = self.record
        text = f"rewound at n={record.n} of partition {record.partition}; {record.rewind.why}"
        return text.rstrip("; ")

    def replaces(self, block: str) -> bool:
        """Return whether the block is one whose record may be deleted.

        Raises:
            ValueError: it is not a block id.
        """
        name = BlockId.parse(block)
        start = self.starts.get(name.table)
        first = self.first_epochs.get(name.table)
        if first is None or start is None or name.partition != self.record.partition:
            return False
        return first <= name.epoch < self.record.epoch and name.first_offset >= start

    def rows(self, table: str, stamp: str) -> str:
        """Return the SQL condition that a row of the table is of such a block; empty: none is."""
        if table not in self.first_epochs or table not in self.starts:
            return ""
        record, column = self.record, quoted(stamp)
        whose = literal(f"{record.app}:{table}:{record.partition}:")
        epoch, first = (f"toInt64OrZero(splitByChar(':', {column})[{n}])" for n in (4, 5))
        return (
            f"startsWith({column}, {whose}) AND {epoch} >= {self.first_epochs[table]} "
            f"AND {epoch} < {record.epoch} AND {first} >= {self.starts[table]}"
        )


def carry_out(
    settings: Settings, ledger: Ledger, blocks: Sequence[Block], rewound: Rewound, check: Check
) -> Settled:
    """Settle a rewind's blocks, remove the rows of those that are not kept, and note that.

    `blocks` are those that it superseded, as far as the journal has them. The check is asked
    before blocks are settled, and before rows are removed.

    Raises:
        Unavailable, Refused: as `supersede`; run it again.
        RelayError: as `check` raises it.
    """
    journal = topic_id(settings, names.journal_topic(settings.app))
    listed = {block.id for block in blocks}
    waiting = [one.block for one in ledger.waiting() if rewound.replaces(one.block.id)]
    blocks = [*blocks, *(one for one in waiting if names.sealed(one.id) not in listed)]
    kept = set(rewound.record.rewind.kept)
    done = []
    for keep in (True, False):
        some = [block for block in blocks if (block.table in kept) == keep]
        if some:
            done.append(supersede(settings, ledger, some, keep=keep, why=rewound.why, check=check))
    more = 0
    for table in sorted(rewound.starts.keys() - kept):
        if where := rewound.rows(table, settings.loader.block_column):
            more += _remove(settings, ledger, table, [where], check)
    ledger.note([superseded_row(journal, rewound.record.partition, rewound.offset)])
    reached("rewind_noted")
    return Settled(sum(one.blocks for one in done), sum(one.rows for one in done) + more)


def supersede(
    settings: Settings,
    ledger: Ledger,
    blocks: Sequence[Block],
    *,
    keep: bool,
    why: str,
    check: Check,
) -> Settled:
    """Settle superseded blocks, and remove their rows unless they are to be kept.

    The ledger keeps the person's words, `why`. The check is asked as in `carry_out`.

    Raises:
        RelayError: as `check` raises it.
        Unavailable: another loader, or an INSERT, is at one of them for too long.
        Refused: a table has no block-id column, or is of an engine whose rows change.
    """
    seconds = 2 * settings.loader.insert_timeout_seconds
    with closing(Worker(settings)) as worker:
        _settle(worker, blocks, why, seconds, check)
        # What was left out of them has a row in the ledger by then, or never gets one.
        known = ledger.entries(rest := [left_out.made_of(block) for block in blocks])
        rest = [block for block in rest if block.id in known]
        _settle(worker, rest, why, seconds, check)
        blocks = [*blocks, *rest]
    reached("blocks_settled")
    if keep:
        return Settled(len(blocks), 0)
    by_table: dict[str, list[str]] = defaultdict(list)
    for block in blocks:
        by_table[block.table].append(block.id)
    stamp = settings.loader.block_column
    rows = sum(
        _remove(settings, ledger, table, _carrying(stamp, ids), check)
        for table, ids in sorted(by_table.items())
    )
    return Settled(len(blocks), rows)


def _carrying(stamp: str, ids: Sequence[str]) -> list[str]:
    """Return conditions in SQL, each that a row carries one of these ids."""
    lists = (ids[start : start + AT_ONCE] for start in range(0, len(ids), AT_ONCE))
    return [f"{quoted(stamp)} IN ({', '.join(map(literal, some))})" for some in lists]


def _settle(
    worker: Worker, blocks: Sequence[Block], why: str, seconds: float, check: Check
) -> None:
    """Repeat until the ledger calls each of them loaded, discarded or dead letters."""
    open_, deadline = list(blocks), time.monotonic() + seconds
    while open_:
        check()
        outcomes = {result.block: result for result in worker.load(open_, (), "discard", why)}
        open_ = [block for block in open_ if outcomes[block.id].outcome not in FINAL]
        if not open_:
            return
        if time.monotonic() > deadline:
            first = outcomes[open_[0].id]
            raise Unavailable(
                f"{several(len(open_), 'block is', 'blocks are')} not settled; {first.block}: "
                f"{first.reason}",
                "check the loaders, then run it again: it continues where it stopped",
            )
        time.sleep(_PAUSE_SECONDS)  # the condition is in the ledger


def _remove(
    settings: Settings, ledger: Ledger, table: str, which: Sequence[str], check: Check
) -> int:
    """Remove rows of the table that meet one of these conditions; return how many did.

    Raises:
        Refused: nothing says whose its rows are, or this user does not see all of them, or not
            the table.
        Unavailable: some are left.
        RelayError: as `check` raises it.
    """
    stamp = settings.loader.block_column
    tables = Tables(ledger.client, stamp)
    target = tables.look({table}).get(table)
    if target is None:
        tables.check_gone(table)
        return 0  # and with it its rows
    if not target.stamped(stamp):
        raise Refused(
            f"{table} has no column {stamp}, or an engine that merges rows into others: nothing "
            "says which rows belong to which block",
            "add the column; rows that were inserted without it stay, unless you remove them "
            "yourself",
        )
    if seen := ledger.shown_of(table):
        raise Refused(
            f"this user sees only those rows of {table} where {seen}: a row policy or "
            "additional_table_filters hides the others, so old rows would stay beside the new ones",
            f"{exempt(table)} run it again: it continues where it stopped.",
        )
    removed = 0
    for where in which:
        before = _count(ledger, table, where)
        if before:
            reached("before_remove")
            check()
            _delete(ledger, table, where)
            reached("after_remove")
        if left := _count(ledger, table, where):
            raise Unavailable(
                f"{table}: {left} rows of superseded blocks are still there",
                "check system.mutations, then run it again",
            )
        removed += before
    return removed


def _count(ledger: Ledger, table: str, where: str) -> int:
    try:
        result = ledger.client.query(f"SELECT count() FROM {quoted_table(table)} WHERE {where}")  # noqa: S608 - quoted
    except ClickHouseError as error:
        raise failure(error, f"counting rows of {table}") from error
    return int(result.result_rows[0][0])


def _delete(ledger: Ledger, table: str, where: str) -> None:
    """Delete rows; return when it is done, on all replicas."""
    sql = f"ALTER TABLE {quoted_table(table)} DELETE WHERE {where} SETTINGS mutations_sync = 2"
    try:
        ledger.client.command(sql)
    except ClickHouseError as error:
        raise failure(error, f"removing rows of {table}") from error
