"""Target tables as they were seen a moment ago, so that not each few blocks ask for them again.

A look is three questions, an eighth of what small blocks cost. It is as old as the statements that
follow it take in any case, and each INSERT asks whether the columns are still those: an INSERT on
an older look fails, and the next attempt looks again. An older part counter has counting go
through more parts, never through fewer.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from loader.tables import Tables, Target

SECONDS = 5.0
"""That a look lasts: several micro-batches of small blocks, and few parts."""


class Looks:
    """Of one worker.

    Args:
        tables: are asked.
        stamp: name of the block-id column.
        clock: seconds, monotonic.
    """

    def __init__(
        self, tables: Tables, stamp: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tables, self._stamp, self._clock = tables, stamp, clock
        self._seen: dict[str, tuple[float, Target]] = {}

    def look(self, tables: Collection[str], *, again: bool) -> dict[str, Target]:
        """The tables that exist, by name.

        Args:
            tables: wanted.
            again: whatever was seen before, as blocks that were attempted before demand.

        Raises:
            Unavailable, Refused: as Tables.look.
        """
        now = self._clock()
        lately = {
            table: target
            for table, (since, target) in self._seen.items()
            if not again and table in tables and now - since < SECONDS
        }
        if unknown := set(tables) - lately.keys():
            found = self._tables.look(unknown)
            self._seen |= {table: (now, one) for table, one in found.items() if self._lasts(one)}
            lately |= found
        return lately

    def _lasts(self, target: Target) -> bool:
        """Whether nothing but counting rows decides about its blocks: no window, no counter."""
        return target.on_one_server() and target.stamped(self._stamp)
