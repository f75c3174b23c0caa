"""ClickHouse's part of the screens, asked no more often than it costs little.

Questions over the whole ledger take as long as it is large, and a screen comes every few seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Generic, TypeVar

from relay.errors import Refused, Unavailable
from relay.operate.view.clickhouse_state import LandedBlocks
from relay.operate.view.facts import LedgerFacts

T = TypeVar("T")

_REST = 20
"""So many times as long as an answer took, the next is not asked for."""
_LONGEST_SECONDS = 30.0
"""As long as a loader leaves between its looks at the whole ledger."""


class Paced(Generic[T]):
    """One question, whose last answer, or error, stands in for those that are not asked."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._again = float("-inf")
        self._found: list[T] = []
        self._error: Unavailable | Refused | None = None

    def answer(self, question: Callable[[], T]) -> T:
        """Return the answer, of now or of before; raise the error of before likewise."""
        began = self._clock()
        if began >= self._again:
            try:
                self._found, self._error = [question()], None
            except (Unavailable, Refused) as error:
                self._error = error
            now = self._clock()
            self._again = now + min(_REST * (now - began), _LONGEST_SECONDS)
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._found[0]


class LedgerLooks:
    """Look again and again through one connection, or a new one after an error.

    Raises (every method):
        Unavailable: no answer.
        Refused: the user may not ask.
    """

    def __init__(
        self, connect: Callable[[], LandedBlocks], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._connect = connect
        self._landed: LandedBlocks | None = None
        self._positions: Paced[tuple[str, dict[int, int]]] = Paced(clock)
        self._settled: Paced[int] = Paced(clock)
        self._whole: Paced[LedgerFacts] = Paced(clock)

    def positions(self, journal: str) -> dict[int, int]:
        """Return the next offset by partition of the journal with this topic id."""
        of, positions = self._positions.answer(
            lambda: (journal, self._ask(lambda landed: landed.positions(journal)))
        )
        return positions if of == journal else {}

    def facts(self, tables: Mapping[str, str], journal: str = "") -> LedgerFacts:
        """Return the ledger's facts, with the states of the blocks in `tables`, by block id."""
        if not self._ask(lambda landed: landed.has_ledger()):
            return LedgerFacts(lost=self._ask(lambda landed: landed.lost(journal)))
        whole = self._whole.answer(lambda: self._ask(lambda landed: landed.whole()))
        states = self._ask(lambda landed: landed.states(tables))
        settled_ms = self._settled.answer(lambda: self._ask(lambda landed: landed.settled_ms()))
        return replace(whole, states=states, settled_ms=settled_ms)

    def _ask(self, question: Callable[[LandedBlocks], T]) -> T:
        try:
            if self._landed is None:
                self._landed = self._connect()
            return question(self._landed)
        except (Unavailable, Refused):
            self._landed = None
            raise
