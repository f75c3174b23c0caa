"""Counts what cannot be judged, by table and reason, for one line each. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Some:
    """Blocks with one reason."""

    first: str
    blocks: int = 0
    rows: int = 0


@dataclass(slots=True)
class UnjudgedTally:
    """Blocks of one table that could not be judged, by what could not be and why."""

    table: str
    _found: dict[str, _Some] = field(default_factory=dict)

    def add(self, reason: str, block: str, rows: int = 0) -> None:
        """Count a block, with the rows that are about it."""
        some = self._found.setdefault(reason, _Some(block))
        some.blocks += 1
        some.rows += rows

    def lines(self) -> Iterator[str]:
        """Yield one sentence for each reason."""
        for reason, some in self._found.items():
            rows = f", {some.rows} rows" if some.rows else ""
            count = "1 block" if some.blocks == 1 else f"{some.blocks} blocks"
            which = some.first if some.blocks == 1 else f"the first is {some.first}"
            yield f"{self.table}: {reason}: {count}{rows} ({which})"
