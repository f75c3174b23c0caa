"""Judges a block's way through the ledger: what cannot be true, and what waits in it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from relay.blocks.placement import place
from relay.operate.verify.judge.acknowledgements import utc
from relay.operate.verify.judge.anomaly import UnplacedAnomaly, foreign, gap
from relay.operate.verify.judge.server_records import SKEW_MS
from relay.operate.verify.judge.tally import UnjudgedTally
from relay.records_pb2 import Block

_MANY = 2
"""So many claims for each block, on average, are worth a sentence."""


@dataclass(frozen=True, slots=True)
class History:
    """One block in the ledger, as relay.operate.verify.read.landed_rows sums up its rows.

    Attributes:
        state: prepared, loaded, aside, parked, discarded or dead.
        claimed_ms: Unix time of the first claim; 0: there is none.
        loaded_ms: Unix time of the first row that has it as loaded; 0: there is none.
        asked: it was parked at some time, or is loaded for a reason that a person gave: a person
            may have decided about it.
        said: it is loaded because a person called it so.
        unstamped: an INSERT of it may have been made while the table had no block-id column.
        stamped: claims whose INSERTs fill that column; of unstamped blocks only.
    """

    state: str
    claimed_ms: int = 0
    loaded_ms: int = 0
    claims: int = 0
    asked: bool = False
    said: bool = False
    unstamped: bool = False
    stamped: Collection[str] = ()

    @property
    def began_ms(self) -> int:
        """The earliest time at which rows of it can have been inserted, by the ledger."""
        return self.claimed_ms or self.loaded_ms


NOTHING = History("")


def impossible(blocks: Iterable[Block], ledger: Mapping[str, History]) -> Iterator[UnplacedAnomaly]:
    """Yield blocks of one table that the ledger had as loaded before they were formed."""
    for block in blocks:
        loaded = ledger.get(block.id, NOTHING).loaded_ms
        if loaded and loaded < block.sealed_at_ms - SKEW_MS:
            yield foreign(
                f"block {block.id}: the ledger says that it was loaded at {utc(loaded)}, before "
                f"it was sealed at {utc(block.sealed_at_ms)}: the entry belongs to an earlier "
                "block of the same name, or no loader wrote it",
                block.partition,
            )


def claims(table: str, ledger: Mapping[str, History]) -> Iterator[str]:
    """Yield a sentence about a table whose blocks were claimed far more often than once."""
    made = sum(history.claims for history in ledger.values())
    touched = sum(history.claims > 0 for history in ledger.values())
    if made > _MANY * touched:
        yield (
            f"{table}: loaders claimed {touched} blocks {made} times, where one claim for each "
            "block is usual"
        )


@dataclass(frozen=True, slots=True)
class WaitingBlock:
    """A block that the ledger keeps for a loader, or for a person: its rows are not loaded yet.

    Attributes:
        block: as the ledger has its record; the journal may have it no more.
        state: aside or parked.
        rows: in the table that carry the block's id.
    """

    block: Block
    state: str
    rows: int = 0

    @property
    def where(self) -> str:
        """The state in words."""
        return "set aside" if self.state == "aside" else "parked"


def waiting_lines(table: str, waiting: Iterable[WaitingBlock]) -> Iterator[str]:
    """Yield how many blocks of one table are set aside, and how many are parked."""
    tally = UnjudgedTally(table)
    for entry in waiting:
        reason = f"{entry.where}, not loaded yet (`loader parked ls` says why)"
        tally.add(reason, entry.block.id, entry.block.rows)
    yield from tally.lines()


def lost(
    waiting: Iterable[WaitingBlock], logs: Mapping[tuple[str, int], tuple[int, int] | None]
) -> Iterator[UnplacedAnomaly]:
    """Yield waiting blocks whose records in the block topic are deleted.

    Args:
        waiting: of one table.
        logs: where each partition of a block topic begins, and where it ends, open transactions
            included; None where it is not there. Of what is missing here nothing is known.
    """
    for one in waiting:
        block, (topic, partition) = one.block, place(one.block)
        log = logs.get((topic, partition), (block.first_offset, block.next_offset))
        if one.rows >= block.rows:
            continue
        if log is None:
            now = "is not there any more, or this user may not see it"
        elif log[0] > block.first_offset:
            now = f"begins at offset {log[0]} now"
        elif log[1] < block.next_offset:
            now = f"ends at offset {log[1]} now"
        else:
            continue
        yield gap(
            f"block {block.id} of {block.rows} rows is {one.where}, not loaded, and its records "
            f"from offset {block.first_offset} on are gone: {topic}[{partition}] {now} (`loader "
            "parked resolve` takes note of what is given up)",
            block.partition,
        )
