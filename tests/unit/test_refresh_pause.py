"""Row messages are refreshed seldom where that takes long: nobody polls meanwhile."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from relay.errors import ClickHouseAway
from relay.process import loop
from relay.process.loop import RelayProcess
from relay.schema.beside import PATIENCE_SECONDS
from tests.mock.rig import relay_settings
from tests.schema.test_tables import NEW, ClickHouse, N, Registry, tables

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from relay.schema.catalogue import TableColumns

TURN_SECONDS = 0.1


class Turns:
    """Of a relay whose refresh takes its time.

    Attributes:
        takes: seconds, each refresh.
        away: whether ClickHouse does not answer then.
        refreshed: when each ended.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.takes, self.away = 0.0, 0.0, False
        self.refreshed: list[float] = []
        monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: self.now))
        settings = relay_settings("app", "127.0.0.1:9", 30.0, {})
        self.relay = RelayProcess(settings, threading.Event())
        monkeypatch.setattr(self.relay._tables, "refresh", self._refresh)

    def _refresh(self) -> frozenset[str]:
        self.now += self.takes
        self.refreshed.append(self.now)
        if self.away:
            raise ClickHouseAway("nobody answers", "wait")
        return frozenset()

    def share(self, seconds: float) -> float:
        """Of this time, that refreshes take."""
        begun, before = self.now, len(self.refreshed)
        while self.now < begun + seconds:
            self.relay._refresh_tables()
            self.now += TURN_SECONDS
        return self.takes * (len(self.refreshed) - before) / (self.now - begun)


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Iterator[Turns]:
    made = Turns(monkeypatch)
    yield made
    made.relay._leave()


@pytest.mark.parametrize("away", [False, True], ids=["answers", "away"])
@pytest.mark.parametrize(("takes", "most"), [(1.9, 0.05), (3.0, 0.05), (30.0, 0.34)])
def test_a_slow_refresh_takes_a_small_share(
    turns: Turns, takes: float, most: float, *, away: bool
) -> None:
    """Red before: the interval began with the refresh, which came again after each poll."""
    turns.takes, turns.away = takes, away
    assert turns.share(3600.0) < most
    # Of the alert on relay_schema_refresh_failures_total.
    assert sum(at > turns.now - 600 for at in turns.refreshed) > 5


def test_a_quick_refresh_comes_as_often_as_is_set(turns: Turns) -> None:
    turns.takes = 0.05
    turns.share(60.0)
    assert len(turns.refreshed) == pytest.approx(60 / 2.1, abs=2)
    turns.takes = 3.0
    turns.share(10.0)
    turns.takes, slow = 0.05, turns.refreshed[-1]
    turns.share(120.0)
    later = [at for at in turns.refreshed if at > slow]
    assert later[1] - later[0] < 2.5, "one slow refresh has one long pause"


@pytest.mark.parametrize("silent", ["m00", "m07", "m15"])
def test_a_silent_database_hides_the_changes_of_others_for_less_than_a_minute(
    turns: Turns, monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    """Until it is known which it is. Red before: 210 s, as each pause was 20 times the question."""
    clickhouse = ClickHouse()
    clickhouse.tables = {f"m{number:02}.t": [N] for number in range(16)}
    turns.relay._tables = tables(clickhouse, Registry(), clock=lambda: turns.now)
    turns.relay._tables.resolve(clickhouse.tables)
    read, changed = clickhouse.read, set[str]()

    def late(asked: Collection[str]) -> dict[str, TableColumns]:
        try:
            return read(asked)
        except ClickHouseAway:
            turns.now += PATIENCE_SECONDS
            raise

    monkeypatch.setattr(clickhouse, "read", late)
    monkeypatch.setattr(turns.relay, "_dispatch", lambda event: changed.update(event.tables))
    clickhouse.blind, clickhouse.silent = {silent}, True
    clickhouse.tables["m08.t"] = [N, NEW]
    begun = turns.now
    while not changed:
        turns.relay._refresh_tables()
        turns.now += TURN_SECONDS
        assert turns.now < begun + 60
    assert changed == {"m08.t"}
