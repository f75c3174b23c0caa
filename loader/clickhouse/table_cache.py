"""Remembers a look at the target tables for a moment: not each few blocks ask for them again.

Receives blocks, gives their tables as loader.clickhouse.tables saw them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from loader.clickhouse.client import TableRefused
from relay import names
from relay.clickhouse.errors import is_answer
from relay.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from loader.clickhouse.tables import Tables, Target
    from relay.records_pb2 import Block

LOOK_SECONDS = 5.0
"""That a look lasts: several micro-batches of small blocks."""


class TableCache:
    """Remember the target tables of one worker for a moment.

    A look is three questions, an eighth of what small blocks cost. It is as old as the statements
    that follow it take in any case, and each INSERT asks whether the columns are still those: an
    INSERT on an older look fails, and the next attempt looks again. An older insert counter makes a
    claim look older, never younger. `stamp`: name of the block-id column; `clock`: seconds,
    monotonic.
    """

    def __init__(
        self, tables: Tables, stamp: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tables, self._stamp, self._clock = tables, stamp, clock
        self._seen: dict[str, tuple[float, Target]] = {}

    def look(self, blocks: Sequence[Block], new: Collection[str]) -> dict[str, Target]:
        """Return the blocks' tables that exist, by name.

        `new`: ids of those that nobody has attempted. Where there is another, all are looked at
        anew.

        Raises:
            Unavailable, Refused: as Tables.look.
            TableRefused: as Tables.look; or the server cannot look into all of their databases.
        """
        now, tables = self._clock(), {block.table for block in blocks}
        lately = {
            table: target
            for table, (since, target) in self._seen.items()
            if table in tables and now - since < LOOK_SECONDS
        }
        if any(block.id not in new for block in blocks):
            lately = {}
        if unknown := tables - lately.keys():
            targets = self._look(unknown)
            # Where a window or an insert counter decides as well, it has to be that of now.
            lasting = {t: (now, one) for t, one in targets.items() if one.counts(self._stamp)}
            self._seen |= lasting
            lately |= targets
        return lately

    def _look(self, tables: Collection[str]) -> dict[str, Target]:
        """Look at tables; whose database fails is another question, where there are several."""
        try:
            return self._tables.look(tables)
        except Unavailable as error:
            databases = {names.split_table(table)[0] for table in tables}
            if len(databases) == 1 or not is_answer(error.__cause__):
                raise
            raise TableRefused(error.message, error.next_step) from error
