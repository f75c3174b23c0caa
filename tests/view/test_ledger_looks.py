"""What a screen every other second asks of ClickHouse, and how often."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from relay.errors import Refused, RelayError
from relay.operate.view.facts import LedgerFacts
from relay.operate.view.ledger_looks import LedgerLooks

if TYPE_CHECKING:
    from collections.abc import Mapping

SCREENS = 150
EVERY_SECONDS = 2.0


class SlowServer:
    """A ClickHouse whose questions take so long by a clock of its own.

    Args:
        seconds: by question; nothing where it is not named.
        error: what the look at the whole ledger ends with.
    """

    def __init__(self, seconds: Mapping[str, float], error: RelayError | None = None) -> None:
        self._seconds, self.error = seconds, error
        self.now, self.asked = 0.0, Counter[str]()

    def _take(self, question: str) -> None:
        self.asked[question] += 1
        self.now += self._seconds.get(question, 0.0)

    def has_ledger(self) -> bool:
        return True

    def positions(self, journal: str) -> dict[int, int]:
        self._take("positions")
        return {0: len(journal)}

    def settled_ms(self) -> int:
        self._take("settled")
        return self.asked["settled"]

    def whole(self) -> LedgerFacts:
        self._take("whole")
        if self.error is not None:
            raise self.error
        return LedgerFacts(there=True, counts=(("d.t", "loaded", self.asked["whole"], 1),))

    def states(self, tables: Mapping[str, str]) -> dict[str, str]:
        self._take("states")
        return dict.fromkeys(tables, "prepared")

    def looks(self) -> LedgerLooks:
        connect: Any = lambda: self  # noqa: E731
        return LedgerLooks(connect, lambda: self.now)


def screens(server: SlowServer, looks: LedgerLooks, number: int = SCREENS) -> float:
    """Draw so many; return how long it took by the server's clock."""
    began = server.now
    for _ in range(number):
        looks.positions("id")
        looks.facts({"b": "d.t"})
        server.now += EVERY_SECONDS
    return server.now - began


def test_a_small_ledger_is_looked_at_for_every_screen() -> None:
    server = SlowServer({"whole": 0.09, "positions": 0.01, "settled": 0.01})
    screens(server, server.looks())
    assert server.asked == dict.fromkeys(("whole", "positions", "settled", "states"), SCREENS)


def test_a_large_ledger_is_looked_at_for_a_twentieth_of_the_time() -> None:
    """It was for every screen: ClickHouse aggregated ten million blocks for ever."""
    server = SlowServer({"whole": 1.0, "positions": 0.5})
    seconds = screens(server, server.looks())
    assert server.asked["whole"] * 1.0 <= seconds / 20 + 1
    assert server.asked["positions"] * 0.5 <= seconds / 20 + 1
    assert server.asked["states"] == SCREENS, "of the blocks that wait each screen tells"


def test_no_figure_is_older_than_half_a_minute() -> None:
    """As long as the loader leaves between its looks at the whole ledger."""
    server = SlowServer({"whole": 10.0})
    seconds = screens(server, server.looks())
    assert SCREENS / 20 < server.asked["whole"] <= seconds / 40 + 1


def test_what_cannot_be_asked_is_not_asked_the_more_often_for_it() -> None:
    """A user's max_execution_time ends each look; the server worked for all of them."""
    server = SlowServer({"whole": 5.0}, Refused("Code: 159", "raise it"))
    looks = server.looks()
    for _ in range(SCREENS):
        with pytest.raises(Refused, match="159"):
            looks.facts({})
        server.now += EVERY_SECONDS
    assert server.asked["whole"] <= SCREENS * EVERY_SECONDS / 30 + 1
    server.error, server.now = None, server.now + 30
    assert looks.facts({}).there


def test_positions_of_a_journal_that_is_no_more_are_nobodys() -> None:
    server = SlowServer({"positions": 1.0})
    looks = server.looks()
    assert looks.positions("id") == {0: 2}
    assert looks.positions("another") == {}
    server.now += 30
    assert looks.positions("another") == {0: 7}
