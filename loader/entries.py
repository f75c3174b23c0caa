"""What is written to the ledger, and what it says of blocks that wait for a person: values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from loader.plan import Entry
from relay.records_pb2 import Block


@dataclass(frozen=True, slots=True)
class Row:
    """A state change to write."""

    block: Block
    entry: Entry


@dataclass(frozen=True, slots=True)
class Parked:
    """A block that waits for a person."""

    block: Block
    reason: str
    since_ms: int
    claimed: bool
    """Somebody is about to settle it, or was broken off: settle it again, it is safe."""


class Doubts(NamedTuple):
    """What a loader knows of the blocks of a micro-batch beside the ledger's entries.

    Attributes:
        forgotten: ids of those that may be in their tables though the ledger has no entry.
        lost: a person says that the ledger knew them; else it is only possible.
        until: claims on them are taken no later, in Unix seconds by the server's clock; 0: any.
    """

    forgotten: frozenset[str] = frozenset()
    lost: bool = False
    until: int = 0


NO_DOUBTS = Doubts()
