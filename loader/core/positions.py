"""The ledger's rows about an app's journal as a whole, not about one block; pure.

Receives (block, attempt) of rows in state "position", gives what they say. All of them
are of that state, because readers of earlier versions know no other. The column `block` tells
them apart:

    JOURNAL:PARTITION         attempt: next offset; all before it is settled
    JOURNAL#began:PARTITION   attempt: a position that was noted by a start: it is the log's first
                              offset of then, and lies behind no record that was settled
    JOURNAL#unsure:PARTITION  attempt: of blocks before it the ledger may lack entries
    JOURNAL#back:PARTITION    the same; and what it has of them may be older than their rows
    JOURNAL#lost:PARTITION    the same as the first; a person says that it had them
    DEAD#letters:PARTITION    attempt: of the topic of dead letters, all before it was looked at
                              for what the ledger lacks
    JOURNAL#gone:0            a person acknowledged that this journal was deleted
    #column-NAME:0            loader.block_column of the app's loaders
    JOURNAL#superseded-OFFSET:PARTITION
                              of the rewind whose record is at this offset the old blocks are
                              settled, and their rows removed
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from loader.core.plan import PERHAPS, SURELY, Entry
from relay import names
from relay.clickhouse.quoting import literal

Why = Literal["unsure", "back", "lost"]
"""Why the ledger may lack entries of blocks before an offset: there is no checkpoint that would say
how far it had come, as at a first start; ClickHouse was set back; a person says it was lost."""
NOTED = """
SELECT block, max(attempt), toUnixTimestamp(now()) FROM LEDGER
WHERE app = {app:String} AND table = '' AND state = 'position' GROUP BY block
"""
"""The rows, as `parse_noted` reads them."""
SAVE = """INSERT INTO LEDGER (app, block, state, attempt)
SELECT {app:String}, {blocks:Array(String)}[n], 'position', {offsets:Array(Int64)}[n]
FROM (SELECT arrayJoin(range(1, length({blocks:Array(String)}) + 1)) AS n)
WHERE (SELECT uniqExact(block) FROM LEDGER STAND) = {known:UInt64}
"""
"""Appends positions unless the ledger is behind others; parameters: `save_parameters`."""
STANDING = """
SELECT block, max(attempt), toUnixTimestamp(now()) FROM LEDGER STAND GROUP BY block
"""
"""The rows that `select_positions` names for STAND, as `parse_noted` reads them."""
_BEGAN = "began"
COLUMN = "#column-"
"""How the `block` of the row begins that names loader.block_column."""
_GONE = "gone"
_LETTERS = "letters"


@dataclass(frozen=True, slots=True)
class Unsure:
    """Which blocks of one journal partition are unsure.

    Attributes:
        end: blocks before this offset may have been inserted, though the ledger has no entry.
        back: of those before this one it may have an entry that is older than their rows.
        lost: of those before this one a person said that it had them.
    """

    end: int
    back: int = 0
    lost: int = 0

    def and_before(self, end: int, why: Why) -> Unsure:
        """Add that blocks before `end` are unsure for this reason."""
        return Unsure(
            max(self.end, end),
            max(self.back, end if why == "back" else 0),
            max(self.lost, end if why == "lost" else 0),
        )

    def asks(self, offset: int, entries: Sequence[Entry]) -> bool:
        """Return whether the ledger may have lost entries of a block at this offset.

        Of a restored ledger a claim may be older than the rows, and than the table's tokens.
        """
        if not entries:
            return offset < self.end
        return offset < self.back and not {one.claim for one in entries} & {PERHAPS, SURELY}


Partition = tuple[str, int]
"""A topic id, and the partition's number."""


@dataclass(slots=True)
class Noted:
    """What the ledger says of the app's journals.

    Attributes:
        positions: next offsets.
        gone: topic ids of deleted journals that a person took note of.
        now: Unix seconds by the server's clock; 0 where there is no row.
        superseded: the `block` of each row about a rewind (relay.names.superseded_row).
        letters: offsets of dead letters; the ledger lacks nothing of those before. If the ledger is
            set back, so is this.
        began: the last position that a start noted, if it was not 0.
        columns: that loaders were started with as loader.block_column.
    """

    positions: dict[Partition, int] = field(default_factory=dict)
    unsure: dict[Partition, Unsure] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    now: int = 0
    superseded: set[str] = field(default_factory=set)
    letters: dict[Partition, int] = field(default_factory=dict)
    began: dict[Partition, int] = field(default_factory=dict)
    columns: set[str] = field(default_factory=set)

    def of(self, journal: str) -> dict[int, int]:
        """Return positions of one journal, by partition."""
        return {p: offset for (topic, p), offset in self.positions.items() if topic == journal}

    def unsure_of(self, journal: str) -> dict[int, Unsure]:
        """Return which blocks of one journal are unsure, by partition."""
        return {p: unsure for (topic, p), unsure in self.unsure.items() if topic == journal}

    def began_of(self, journal: str) -> dict[int, int]:
        """Return by partition from where on a position lies behind a record that was settled.

        Earlier versions noted only up to where a person said that the ledger was lost: a position
        before that may be where a loader began.
        """
        unsure = self.unsure_of(journal)
        return {
            p: self.began.get((journal, p), unsure.get(p, Unsure(0)).lost) for p in self.of(journal)
        }

    def others(self, journal: str) -> list[str]:
        """Return the topic ids of all other journals that have a position."""
        return sorted({topic for topic, _ in self.positions} - {journal})


def parse_noted(rows: Iterable[Sequence[object]]) -> Noted:
    """Parse rows of (block, greatest attempt, now)."""
    ledger = Noted()
    offsets = {"": ledger.positions, _LETTERS: ledger.letters, _BEGAN: ledger.began}
    for block, attempt, now in rows:
        name, _, number = str(block).rpartition(":")
        topic, _, kind = name.partition("#")
        partition, offset, ledger.now = (topic, int(number)), int(str(attempt)), int(str(now))
        if kind in {"unsure", "back", "lost"}:
            before = ledger.unsure.get(partition, Unsure(0))
            ledger.unsure[partition] = before.and_before(offset, cast("Why", kind))
        elif kind == _GONE:
            ledger.gone.add(topic)
        elif name.startswith(COLUMN):
            ledger.columns.add(name.removeprefix(COLUMN))
        elif names.SUPERSEDED in name:
            ledger.superseded.add(str(block))
        elif kind in offsets:
            offsets[kind][partition] = offset
    return ledger


def newest(noted: Noted) -> dict[str, int]:
    """Return of each `block` that rows are appended to again and again the greatest attempt.

    Nobody reads those below it. Of what is unsure, "lost" and "back" count as "unsure", too.
    """
    rows = {position(journal, p): offset for (journal, p), offset in noted.positions.items()}
    rows |= {_noted_row(journal, _BEGAN, p): offset for (journal, p), offset in noted.began.items()}
    rows |= {_noted_row(topic, _LETTERS, p): offset for (topic, p), offset in noted.letters.items()}
    for (journal, p), unsure in noted.unsure.items():
        ends: dict[Why, int] = {"unsure": unsure.end, "back": unsure.back, "lost": unsure.lost}
        rows |= {_noted_row(journal, why, p): end for why, end in ends.items()}
    return rows


def only_a_marker(at: int, low: int, began: int) -> bool:
    """Return whether nothing but a transaction's marker lay between a position and the log's start.

    A transaction of a relay writes at most one record into a partition of the journal. So right
    behind each record, where a position is that was saved when the record was settled, lies its
    marker, which holds nothing. Where a loader began, a record may have been. `low`: the log's
    first offset; `began`: a position behind this one was saved when a record was settled.
    """
    return began < at == low - 1


def position(journal: str, partition: int) -> str:
    """Return the `block` of a position row."""
    return f"{journal}:{partition}"


def _noted_row(topic: str, kind: str, partition: int) -> str:
    return f"{topic}#{kind}:{partition}"


def save_parameters(
    journal: str, positions: Mapping[int, int], known: Mapping[int, int]
) -> dict[str, Any]:
    """Return the parameters of SAVE: `positions` to append where it has `known`, or later ones."""
    return {
        "blocks": [position(journal, p) for p in positions],
        "offsets": list(positions.values()),
        "known": len(known),
    }


def select_positions(journal: str, floors: Mapping[int, int]) -> str:
    """Return in SQL which rows are positions of a journal, none before the floor of its partition.

    Every micro-batch leaves rows, so there are tens of millions within a month. They are sorted by
    block and attempt, and named like this ClickHouse reads the last of each block alone. Where a
    ledger of an earlier version is sorted by block, it reads the attempts of all, and no more.
    `floors`: next offset by partition.
    """
    places = " OR ".join(
        f"(block = {literal(position(journal, p))} AND attempt >= {at})"
        for p, at in sorted(floors.items())
    )
    return (
        f"PREWHERE attempt >= {min(floors.values(), default=0)} WHERE app = {{app:String}} "
        f"AND table = '' AND state = 'position' AND ({places or '0'})"
    )


def rows_of(
    journal: str, positions: Mapping[int, int], unsure: Mapping[int, int], why: Why
) -> list[dict[str, object]]:
    """Return what a start records: positions, and which blocks are unsure, and why."""
    began = {p: offset for p, offset in positions.items() if offset}
    return [
        *(_row(position(journal, p), offset) for p, offset in positions.items()),
        *(_row(_noted_row(journal, _BEGAN, p), offset) for p, offset in began.items()),
        *(_row(_noted_row(journal, why, p), end) for p, end in unsure.items()),
    ]


def letters_rows(topic: str, ends: Mapping[int, int]) -> list[dict[str, object]]:
    """Return the rows that record how far a topic of dead letters, by its id, was looked at."""
    return [_row(_noted_row(topic, _LETTERS, p), end) for p, end in ends.items()]


def gone_row(journal: str) -> dict[str, object]:
    """Return the row that records a person's acknowledgement of the deletion of a journal."""
    return _row(_noted_row(journal, _GONE, 0))


def column_row(name: str) -> dict[str, object]:
    """Return the row that records loader.block_column."""
    return _row(f"{COLUMN}{name}:0")


def superseded_row(journal: str, partition: int, offset: int) -> dict[str, object]:
    """Return the row that records a rewind, at this offset of the journal, as carried out."""
    return _row(names.superseded_row(journal, partition, offset), offset)


def _row(block: str, attempt: int = 0) -> dict[str, object]:
    return {"block": block, "state": "position", "attempt": attempt}
