"""What is written to the ledger, and what it says of blocks that wait: values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from loader.core import left_out
from loader.core.plan import PREPARED, Entry
from relay.records_pb2 import Block

_CLOCKS_MS = 600_000
"""By how much the relay's clock, which dates a block, may be ahead of ClickHouse's."""


def earliest(block: Block) -> int:
    """Return the earliest Unix time in ms, by the server's clock, of a statement of the block."""
    return max(block.sealed_at_ms - _CLOCKS_MS, 0)


@dataclass(frozen=True, slots=True)
class NewEntry:
    """A state change to write.

    Attributes:
        version: of a claim, ClickHouse's version before it; "": no INSERT comes under it.
    """

    block: Block
    entry: Entry
    version: str = ""


@dataclass(frozen=True, slots=True)
class ParkedEntry:
    """A block that waits for a person, or for its table.

    Attributes:
        claimed: somebody is about to settle it, or was broken off: settle it again, it is safe.
        aside: it waits for its table; a loader tries it again from time to time.
        tries: how often it was set aside.
        last_ms: when that was done last.
        claims: that the ledger has of it.
    """

    block: Block
    reason: str
    since_ms: int
    claimed: bool
    aside: bool = False
    tries: int = 0
    last_ms: int = 0
    claims: Sequence[str] = ()


def claims(entries: Iterable[Entry]) -> set[str]:
    """Return the claims among a block's rows."""
    return {entry.claim for entry in entries if entry.state == PREPARED}


def ledger_columns(row: NewEntry) -> Mapping[str, object]:
    """Return the ledger's columns of a state change."""
    block, entry = row.block, row.entry
    waits = left_out.record(block) if entry.state in {"parked", "aside"} else ""
    return {
        "table": block.table,
        "block": block.id,
        "rows": entry.rows,
        "transform": entry.transform,
        "sent": entry.sent,
        "record": entry.record or waits,
        "state": entry.state,
        "attempt": entry.attempt,
        "claim": entry.claim,
        "seen": entry.seen,
        "stamped": entry.stamped,
        "reason": entry.reason,
        "left_out": entry.left_out,
        "version": row.version,
    }
