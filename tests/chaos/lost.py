"""What a campaign took away on purpose and read before: the judges count it as if it were there.

So a row that a dropped table held is not missing, and one too many if it comes back.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.chaos.rows import Rows

REFRESH_MS = 10_000
"""Until a relay has surely seen that a table is there again."""


@dataclass(slots=True)
class Absence:
    """A table was not there; its messages may be dead letters.

    Attributes:
        until_ms: Unix milliseconds when it was made anew; None: it is still away.
    """

    until_ms: int | None = None

    def excuses(self, sent_at_ms: int) -> bool:
        """Whether a message sent then may have met it."""
        return self.until_ms is None or sent_at_ms <= self.until_ms + REFRESH_MS


@dataclass(slots=True)
class Dropped:
    """Tables that were dropped.

    Attributes:
        rows: that they held, by table.
        absences: by table.
    """

    rows: dict[int, list[Rows]] = field(default_factory=lambda: defaultdict(list))
    absences: dict[int, list[Absence]] = field(default_factory=lambda: defaultdict(list))

    def away(self) -> bool:
        """Whether a table is not there now."""
        return any(one.until_ms is None for many in self.absences.values() for one in many)

    def back(self) -> None:
        """Every table is there again, as from now."""
        now_ms = time.time_ns() // 1_000_000
        for one in (one for many in self.absences.values() for one in many):
            one.until_ms = one.until_ms or now_ms

    def count(self, table: int) -> int:
        """Rows that went with it."""
        return sum(len(rows.numbers) for rows in self.rows.get(table, ()))


def excused(absences: Mapping[int, list[Absence]], table: int, sent_at_ms: int) -> bool:
    """Whether a well formed message of a table may be a dead letter."""
    return any(one.excuses(sent_at_ms) for one in absences.get(table, ()))


@dataclass(slots=True)
class Deleted:
    """The beginning of a partition that is gone.

    Attributes:
        records: that a read_committed reader saw of it.
        before: the first offset that was left.
    """

    records: list[Any] = field(default_factory=list)
    before: int = 0
