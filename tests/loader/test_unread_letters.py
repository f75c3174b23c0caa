"""A start that cannot read dead letters: for how long it waits, and whether it goes on without."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from loader.journal import begin_plan, past_letters, startup
from loader.journal.past_letters import FoundLetters
from relay.errors import Refused, RelayError, Unavailable
from relay.kafka import partition_reader
from tests.config.test_kafka_clients import settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from loader.core.positions import Why
    from relay.config.settings import Settings

AWAY = Unavailable("shop.dead[0] has an open transaction at 7")
DENIED = Refused("read shop.dead: TOPIC_AUTHORIZATION_FAILED")


@dataclass
class Start:
    """Of a loader with one block that waits, by a clock that goes as it waits."""

    monkeypatch: pytest.MonkeyPatch
    of: Settings
    error: RelayError
    stops_after: float = 3_600.0
    now: float = 0.0
    said: list[str] = field(default_factory=list)
    written: list[object] = field(default_factory=list)

    def record(self, why: Why) -> None:
        """As loader.journal.startup.begin does, before any block is loaded."""

        def read(*_: object) -> FoundLetters:
            raise self.error

        self.monkeypatch.setattr(past_letters, "since", lambda *_: 0)
        self.monkeypatch.setattr(past_letters, "read", read)
        self.monkeypatch.setattr(time, "monotonic", lambda: self.now)
        ledger: Any = SimpleNamespace(write=self.written.append, note=self.written.append)
        noted: Any = SimpleNamespace(letters={})
        facts: Any = SimpleNamespace(bounds={0: (0, 100)}, noted=noted)
        found = begin_plan.StartPlan({0: 100}, {}, why=why)
        startup._Beginning(self.of, ledger, self.rest, self.tell).record_letters(facts, found)

    def rest(self, seconds: float, why: str) -> None:
        assert why
        self.now += seconds
        if self.now > self.stops_after:
            raise KeyboardInterrupt

    def tell(self, text: str, **_: object) -> None:
        if not text.startswith("waiting, "):
            self.said.append(text)


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Start]:
    def made(rejected: str, error: RelayError, **more: object) -> Start:
        of = settings()
        loader = of.loader.model_copy(update={"rejected": rejected, **more})
        return Start(monkeypatch, of.model_copy(update={"loader": loader}), error)

    return made


@pytest.mark.parametrize("rejected", ["park", "dead"])
def test_a_start_that_knows_of_no_restore_goes_on_soon(
    start: Callable[..., Start], rejected: str
) -> None:
    """And the next one looks again: nothing says that the letters were looked at."""
    one = start(rejected, AWAY)
    one.record("unsure")
    assert one.now < 30
    assert one.written == []
    (said,) = one.said
    assert AWAY.message in said
    assert "the next start looks" in said


@pytest.mark.parametrize("why", ["back", "lost"])
def test_a_loader_that_writes_no_letters_goes_on_after_a_transactions_time(
    start: Callable[..., Start], why: Why
) -> None:
    one = start("park", AWAY)
    one.record(why)
    assert one.of.relay.transaction_timeout_seconds < one.now < 120
    assert one.written == []
    (said,) = one.said
    assert "look for them with `relay dead ls`" in said


@pytest.mark.parametrize("why", ["back", "lost"])
def test_letters_that_would_be_written_twice_are_waited_for(
    start: Callable[..., Start], why: Why
) -> None:
    """Negative control: ClickHouse was set back, and the loader writes dead letters."""
    with pytest.raises(KeyboardInterrupt):
        start("dead", AWAY).record(why)
    with pytest.raises(Unavailable):
        start("dead", AWAY, wait_for_servers_seconds=5.0).record(why)
    with pytest.raises(Refused):
        start("dead", DENIED).record(why)


@pytest.mark.parametrize(("why", "lines"), [("unsure", 0), ("back", 1), ("lost", 1)])
def test_a_denied_right_is_not_waited_for(
    start: Callable[..., Start], why: Why, lines: int
) -> None:
    one = start("park", DENIED)
    one.record(why)
    assert (one.now, len(one.said), one.written) == (0.0, lines, [])


def test_reading_ends_when_the_loader_is_to_stop() -> None:
    """Letters may be many, and a transaction may stay open."""

    def check() -> None:
        raise KeyboardInterrupt

    reader = past_letters._CheckingReader(
        {"bootstrap.servers": "127.0.0.1:1", "group.id": "none"}, check
    )
    place = partition_reader.TopicPartition("shop.dead", 0, 0)
    with pytest.raises(KeyboardInterrupt):
        partition_reader.begin_once_stable(reader, place, 7, 30)
    with pytest.raises(KeyboardInterrupt):
        list(partition_reader.records(reader, place, 7, 30))
    reader.close()
