"""`loader status`: what was read, as rows for people. Pure.

Receives the journal's blocks behind the ledger's position, ledger counts and entries, and
positions; gives one row per table and one per journal partition.
"""

# pure

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from loader.core.entries import ParkedEntry
from loader.core.plan import DEAD, DISCARDED, LOADED, PREPARED, Entry, settled
from relay.records_pb2 import Block


@dataclass(frozen=True, slots=True)
class LoaderFacts:
    """What was read of ledger, journal and checkpoint.

    Attributes:
        now_ms: Unix time.
        journal: whether there is one, which the relay makes when it first runs.
        ledger: whether there is one, which the loader makes when it first runs.
        sealed: blocks of the journal from the ledger's positions on.
        entries: the ledger's rows of those blocks, by block id.
        counts: (table, state, blocks, rows), a block in its current state.
        parked: blocks that wait for a person.
        aside: blocks that wait for their table, and are tried again.
        positions: by journal partition that the ledger knows, before which offset every record is
            settled: the end, where none lies behind the ledger's position.
        ends: last stable offset by journal partition.
        checkpoint: next journal offset by partition, from Spark's checkpoint; None where it
            cannot be read here, or is not there.
    """

    now_ms: int
    journal: bool = False
    ledger: bool = False
    sealed: Sequence[Block] = ()
    entries: Mapping[str, Sequence[Entry]] | None = None
    counts: Sequence[tuple[str, str, int, int]] = ()
    parked: Sequence[ParkedEntry] = ()
    aside: Sequence[ParkedEntry] = ()
    positions: Mapping[int, int] | None = None
    ends: Mapping[int, int] | None = None
    checkpoint: Mapping[int, int] | None = None


@dataclass(frozen=True, slots=True)
class LoaderTableRow:
    """A table's blocks by state, and the one that waits longest.

    Attributes:
        sealed_blocks, sealed_rows: that no loader has touched.
        claimed_blocks: that a loader is at, or ended in the middle of.
        aside_blocks: that wait for their table, or for a limit; also while one is tried again.
        dead_blocks: of messages that were left out of others, and are dead letters.
        oldest, oldest_seconds: the sealed or claimed block that waits longest, since it was
            sealed; "" and None where none waits.
    """

    table: str
    sealed_blocks: int
    sealed_rows: int
    claimed_blocks: int
    loaded_blocks: int
    loaded_rows: int
    aside_blocks: int
    aside_rows: int
    parked_blocks: int
    parked_rows: int
    discarded_blocks: int
    dead_blocks: int
    oldest: str
    oldest_seconds: float | None


@dataclass(frozen=True, slots=True)
class PositionRow:
    """A journal partition: every block before `ledger` is settled; None: not known."""

    partition: int
    ledger: int | None
    checkpoint: int | None
    end: int | None


@dataclass(frozen=True, slots=True)
class LoaderStatus:
    """The loader's state: what was read, as rows for people."""

    facts: LoaderFacts
    tables: tuple[LoaderTableRow, ...]
    positions: tuple[PositionRow, ...]


def assemble(facts: LoaderFacts) -> LoaderStatus:
    """Return the loader as it stands."""
    return LoaderStatus(facts, tuple(_tables(facts)), tuple(_positions(facts)))


def _tables(facts: LoaderFacts) -> Iterable[LoaderTableRow]:
    entries = facts.entries or {}
    counts = {(table, state): (n, rows) for table, state, n, rows in facts.counts}
    open_ = [block for block in facts.sealed if settled(entries.get(block.id, ())) is None]
    tables = {block.table for block in facts.sealed} | {table for table, *_ in facts.counts}
    for table in sorted(tables):
        waiting = [block for block in open_ if block.table == table]
        oldest = min(waiting, key=lambda block: block.sealed_at_ms, default=None)
        untouched = [block for block in waiting if not entries.get(block.id)]
        parked = [entry.block for entry in facts.parked if entry.block.table == table]
        aside = [entry.block for entry in facts.aside if entry.block.table == table]
        age = None if oldest is None else max(facts.now_ms - oldest.sealed_at_ms, 0) / 1000
        yield LoaderTableRow(
            table=table,
            sealed_blocks=len(untouched),
            sealed_rows=sum(block.rows for block in untouched),
            claimed_blocks=counts.get((table, PREPARED), (0, 0))[0],
            loaded_blocks=counts.get((table, LOADED), (0, 0))[0],
            loaded_rows=counts.get((table, LOADED), (0, 0))[1],
            aside_blocks=len(aside),
            aside_rows=sum(block.rows for block in aside),
            parked_blocks=len(parked),
            parked_rows=sum(block.rows for block in parked),
            discarded_blocks=counts.get((table, DISCARDED), (0, 0))[0],
            dead_blocks=counts.get((table, DEAD), (0, 0))[0],
            oldest="" if oldest is None else oldest.id,
            oldest_seconds=age,
        )


def _positions(facts: LoaderFacts) -> Iterable[PositionRow]:
    known = facts.positions or {}, facts.checkpoint or {}, facts.ends or {}
    for partition in sorted(set().union(*known)):
        yield PositionRow(partition, *(offsets.get(partition) for offsets in known))


def checkpointed(text: str, journal: str) -> dict[int, int] | None:
    """Return offsets by partition from a file of Spark's offset log; None: another journal's.

    The file has version, metadata and the source's offsets, one a line.
    """
    try:
        offsets_by_name = json.loads(text.splitlines()[-1])
        offsets = {int(p): int(offset) for p, offset in offsets_by_name.items() if p != "journal"}
    except (IndexError, ValueError, AttributeError):
        return None
    return offsets if offsets_by_name.get("journal") == journal else None


def without_ledger(facts: LoaderFacts) -> str:
    """Return what is known where there is no ledger: it was lost, or no loader has run."""
    if not facts.journal:
        return "no ledger yet: no loader has run"
    read = [(p, offset) for p, offset in sorted((facts.checkpoint or {}).items()) if offset]
    what, page = "no ledger in loader.database", "relay docs backup"
    if not read:
        return f"{what}: no loader has run yet, or it was lost ({page})"
    partition, offset = read[0]
    return (
        f"{what}, but the checkpoint stands at offset {offset} of the journal's partition "
        f"{partition}: it was lost, or loader.database names another database ({page})"
    )


def as_json(status: LoaderStatus) -> dict[str, Any]:
    """Return it as JSON has it; what is not known is null."""
    facts = status.facts
    return {
        "at_ms": facts.now_ms,
        "journal": facts.journal,
        "ledger": facts.ledger,
        "tables": [asdict(row) for row in status.tables],
        "positions": [asdict(row) for row in status.positions],
        "parked": [parked_as_json(parked) for parked in facts.parked],
        "aside": [parked_as_json(parked) for parked in facts.aside],
    }


def parked_as_json(parked: ParkedEntry) -> dict[str, Any]:
    """Return a block that is parked or set aside, for programs; times are Unix milliseconds."""
    return {
        "id": parked.block.id,
        "table": parked.block.table,
        "rows": parked.block.rows,
        "reason": parked.reason,
        "since_ms": parked.since_ms,
        "claimed": parked.claimed,
        "aside": parked.aside,
        "to_dead_letters": parked.block.to_dead_letters,
        "tries": parked.tries,
        "last_ms": parked.last_ms,
    }


def tried(parked: ParkedEntry) -> str:
    """Return how often a block was set aside, and when last, for people."""
    last = datetime.fromtimestamp(parked.last_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"{parked.tries} {'try' if parked.tries == 1 else 'tries'}, the last at {last} UTC"
