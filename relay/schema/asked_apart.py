"""Asks about tables of several databases together, and apart where ClickHouse fails at one.

Receives tables and what asks about them, gives those that could not be asked about. The tables of
some databases (of engine MySQL, SQLite or Remote) are listed by another server: while that one is
away, ClickHouse answers every question that concerns such a database with an error, whatever else
the question is about; while that one is silent, so is ClickHouse.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping

from relay.clickhouse.errors import is_answer
from relay.errors import ClickHouseAway
from relay.program.waiting import Retry
from relay.schema.catalogue import is_late

Ask = Callable[[set[str]], None]


log = logging.getLogger(__name__)

MOST_FAILURES = 32
"""Of questions in a row until it is the server's trouble, and no longer that of few databases."""
_LATE_COUNTS = 8
"""As so many failures: for a question without an answer the relay has waited."""


class DatabasesApart:
    """Remember which databases ClickHouse cannot look into, and ask about them seldom."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._retry = Retry(clock)
        self._away: dict[str, ClickHouseAway] = {}
        # Databases about which a question failed; those of one set are asked about together.
        self._unsure: list[set[str]] = []

    def is_due(self, tables: Collection[str]) -> bool:
        """Return whether it is time to ask about one of these tables."""
        return self._retry.due or any(_database(table) not in self._away for table in tables)

    def is_searching(self, tables: Collection[str]) -> bool:
        """Return whether a question failed, and it is not known yet of which of their databases."""
        databases = {_database(table) for table in tables}
        return any(some & databases for some in self._unsure)

    def ask(self, tables: Collection[str], ask: Ask) -> dict[str, ClickHouseAway]:
        """Ask about tables; return those of databases that ClickHouse cannot look into, and why.

        `ask` asks one question about some of them, and raises ClickHouseAway.

        Raises:
            ClickHouseAway: the server did not answer, or fails at every question. What was found
                of some databases until then is remembered.
            Refused: as `ask`.
        """
        by_database = defaultdict[str, set[str]](set)
        for table in tables:
            by_database[_database(table)].add(table)
        apart = [name for name in self._away if name in by_database]
        asked = by_database.keys() - self._away.keys()
        try:
            self._ask_together(set(asked), by_database, ask)
            if apart and self._retry.due:
                asked |= set(apart)
                self._ask_each(apart, by_database, ask)
        finally:
            if not self._away:
                self._retry.answered()
            elif asked & self._away.keys():
                self._retry.failed()
        away = {_database(table) for table in tables} & self._away.keys()
        return {table: self._away[name] for name in away for table in by_database[name]}

    def _ask_together(self, databases: set[str], tables: Mapping[str, set[str]], ask: Ask) -> None:
        """Ask about all at once; where that fails, about half of them, and so on.

        A question without an answer has taken its time: the halves are asked next time. One about a
        single database ends nothing, where the server has answered others: now it is known.
        """
        unsure = set[str]().union(*self._unsure)
        later = [some - databases for some in self._unsure]
        pieces = [some & databases for some in (*self._unsure, databases - unsure)]
        failures, answered = 0, False
        try:
            while pieces:
                if not (some := pieces.pop()):
                    continue
                try:
                    ask(set().union(*(tables[name] for name in some)))
                except ClickHouseAway as error:
                    late = is_late(error)
                    failures += _LATE_COUNTS if late else 1
                    if late or is_answer(error.__cause__):
                        pieces += self._taken_apart(some, error)
                    blamed = answered and len(some) == 1 if late else is_answer(error.__cause__)
                    if not blamed or failures > MOST_FAILURES:
                        raise
                else:
                    failures, answered = 0, True
        finally:
            self._unsure = [some for some in (*later, *pieces) if some]

    def _taken_apart(self, databases: set[str], error: ClickHouseAway) -> list[set[str]]:
        """What to ask instead, the first question last; a single database is away."""
        if len(databases) == 1:
            self._note(next(iter(databases)), error)
            return []
        first = set(sorted(databases)[: len(databases) // 2])
        return [databases - first, first]

    def _ask_each(self, away: list[str], tables: Mapping[str, set[str]], ask: Ask) -> None:
        """Ask again about each of these by itself: one that is silent keeps no other."""
        failures = 0
        for name in away:
            try:
                ask(set(tables[name]))
            except ClickHouseAway as error:
                failures += _LATE_COUNTS if is_late(error) else 1
                self._note(name, error)
                if not (is_answer(error.__cause__) or is_late(error)) or failures > MOST_FAILURES:
                    return
            else:
                failures = 0
                del self._away[name]

    def _note(self, database: str, error: ClickHouseAway) -> None:
        """Remember that it is away, as the one to be asked about last."""
        self._away.pop(database, None)
        self._away[database] = error
        log.warning(
            "ClickHouse cannot look into a database: its tables stay as they were, messages of "
            "those that are new here wait, and other databases go on",
            extra={"database": database, "why": error.message, "next": error.next_step},
        )


def _database(table: str) -> str:
    return table.partition(".")[0]
