"""How the source is filled, and what its producers were told became of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.chaos import rows
from tests.chaos.rows import Range

COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"


@dataclass(frozen=True, slots=True)
class Shape:
    """How the source is filled.

    Attributes:
        rows_per_second: aimed at; 0: as fast as it goes.
        transactional: share of the batches that are transactions.
        aborted: share of the transactions that are aborted.
        messages: most messages in a batch.
        rows: most rows in a message.
        bad: share of the messages that cannot become rows.
    """

    rows_per_second: float = 2000.0
    transactional: float = 0.6
    aborted: float = 1 / 3
    messages: int = 8
    rows: int = 60
    bad: float = 0.002


@dataclass(slots=True)
class Truth:
    """What the source's producers were told: (rows, meant, outcome), in order."""

    told: list[tuple[Range, str, str]] = field(default_factory=list)
    transactions: Counter[str] = field(default_factory=Counter)
    replaced: int = 0

    def rows(self, outcome: str) -> int:
        return sum(r.count for r, meant, o in self.told if o == outcome and meant != rows.BAD)
