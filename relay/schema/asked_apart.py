"""Asks about tables of several databases together, and apart where ClickHouse fails at one.

Receives tables and what asks about them, gives those that could not be asked about. The tables of
some databases (of engine MySQL, SQLite or Remote) are listed by another server: while that one is
away, ClickHouse answers every question that concerns such a database with an error, whatever else
the question is about.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from relay.errors import ClickHouseAway
from relay.program.waiting import Retry
from relay.schema.catalogue import has_answered

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    Ask = Callable[[set[str]], None]

log = logging.getLogger(__name__)

MOST_FAILURES = 32
"""Of questions in a row until it is the server's trouble, and no longer that of few databases."""


class DatabasesApart:
    """Remember which databases ClickHouse cannot look into, and ask about them seldom.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._retry = Retry(clock)
        self._away: dict[str, ClickHouseAway] = {}

    def is_due(self, tables: Collection[str]) -> bool:
        """Return whether it is time to ask about one of these tables."""
        return self._retry.due or any(_database(table) not in self._away for table in tables)

    def ask(self, tables: Collection[str], ask: Ask) -> dict[str, ClickHouseAway]:
        """Ask about tables; return those of databases that ClickHouse cannot look into, and why.

        Args:
            tables: as database.table.
            ask: asks one question about some of them, and raises ClickHouseAway.

        Raises:
            ClickHouseAway: the server did not answer, or fails at every question.
            Refused: as `ask`.
        """
        apart = {table for table in tables if _database(table) in self._away}
        failed = self._pieces(set(tables) - apart, ask)
        is_new = bool(failed)
        if apart and self._retry.due:
            is_new = True
            try:
                failed |= self._pieces(apart, ask)
            except ClickHouseAway as error:
                failed |= dict.fromkeys(apart, error)
        else:
            failed |= {table: self._away[_database(table)] for table in apart}
        asked = {_database(table) for table in tables}
        self._away = {name: why for name, why in self._away.items() if name not in asked}
        self._away |= {_database(table): why for table, why in failed.items()}
        if not self._away:
            self._retry.answered()
        elif is_new and failed:
            self._retry.failed()
        return failed

    def _pieces(self, tables: set[str], ask: Ask) -> dict[str, ClickHouseAway]:
        """Ask about all at once; where that fails, about half of the databases, and so on."""
        failed: dict[str, ClickHouseAway] = {}
        failures = 0
        pieces = [tables] if tables else []
        while pieces:
            some = pieces.pop()
            try:
                ask(some)
            except ClickHouseAway as error:
                failures += 1
                if not has_answered(error) or failures > MOST_FAILURES:
                    raise
                databases = sorted({_database(table) for table in some})
                if len(databases) == 1:
                    failed |= dict.fromkeys(some, error)
                    log.warning(
                        "ClickHouse cannot look into a database: its tables stay as they were, "
                        "messages of those that are new here wait, and other databases go on",
                        extra={
                            "database": databases[0],
                            "why": error.message,
                            "next": error.next_step,
                        },
                    )
                    continue
                half = set(databases[: len(databases) // 2])
                first = {table for table in some if _database(table) in half}
                pieces += [some - first, first]
        return failed


def _database(table: str) -> str:
    return table.partition(".")[0]
