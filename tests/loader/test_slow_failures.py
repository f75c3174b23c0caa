"""Blocks whose failures take long, as those at a silent server do: no server, a clock by hand."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from loader.blocks.attempt import Attempt, Outcome
from loader.blocks.made_rows import Maker
from loader.clickhouse.tables import Target
from loader.core import plan
from loader.core.table_rules import Nature, Window
from loader.metrics.observer import NOTHING
from loader.spark import micro_batch
from loader.spark.known_blocks import BatchBlocks
from loader.spark.micro_batch import Settling
from relay.clickhouse.errors import About
from relay.errors import Unavailable
from relay.records_pb2 import Block, LeftOut
from tests.config.test_kafka_clients import settings

BLOCK, OTHER = (Block(id=f"app:{name}:0:0:0", table=name) for name in ("d.t", "d.other"))


class Driver:
    """A micro-batch of two tables; only the first one's block fails.

    Attributes:
        now: the time.
        rounds: how often the block was attempted.
        aside: how it stands aside, if it does.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, failures: Sequence[tuple[float, str]]
    ) -> None:
        """Take of each round how long it takes, and what the failure is about; the last repeats."""
        self.now, self.rounds, self.parked = 0.0, 0, 0
        self.aside: Any = None
        self._failures = failures
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(micro_batch, "time", clock)
        monkeypatch.setattr(micro_batch, "attempt", self._attempt)
        stopping = SimpleNamespace(is_set=lambda: False, wait=self._wait)
        ledger = SimpleNamespace(shown_of=lambda _: None)
        self._settling = Settling(settings(), ledger, self._say, NOTHING, self, stopping)  # type: ignore[arg-type]
        left = {one.id: one for one in (BLOCK, OTHER)}
        self._settling._known = SimpleNamespace(  # type: ignore[assignment]
            look=lambda _: BatchBlocks(2, left, frozenset(), 0),
            check=lambda: None,
            settled=lambda _: None,
        )

    def settle(self) -> None:
        self._settling.settle(None, [])  # type: ignore[arg-type]

    def _attempt(self, _: Any, __: Any, blocks: Collection[Block], *___: Any) -> list[Outcome]:
        seconds, about = self._failures[min(self.rounds, len(self._failures) - 1)]
        self.rounds += 1
        self.now += seconds
        return [
            Outcome(one.id, "retry", 1, "why", about=about)
            if one == BLOCK
            else Outcome(one.id, "loaded", 1, "")
            for one in blocks
        ]

    def _wait(self, seconds: float) -> bool:
        self.now += seconds
        return False

    def _say(self, text: str, **_: Any) -> None: ...

    def shut(self, _: str) -> str:
        return ""

    def loaded(self, _: str) -> None: ...

    def put(self, blocks: Sequence[Any]) -> dict[str, str]:
        (self.aside,) = blocks
        return {}


def test_a_silent_partition_is_not_waited_for_six_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other tables' new blocks wait in the next micro-batch."""
    driver = Driver(monkeypatch, [(40.0, About.SERVER)])
    driver.settle()
    assert (driver.aside.block, driver.rounds) == (BLOCK, 3)


def test_a_long_round_alone_sets_nothing_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large micro-batch; the failure itself may have taken no time at its very end."""
    driver = Driver(monkeypatch, [(300.0, About.SERVER), (0.1, About.SERVER)])
    driver.settle()
    assert (driver.aside.block, driver.rounds) == (BLOCK, 6)


def test_a_statement_that_still_runs_is_the_same_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    """An INSERT gets no answer, and goes on: its table is shut, or the next block waits as well."""
    driver = Driver(monkeypatch, [(301.0, About.SERVER), (0.1, "")])
    driver.settle()
    assert (driver.aside.about, driver.rounds) == (About.SERVER, 6)


def test_rows_that_do_not_come_are_the_same_trouble_before_a_claim() -> None:
    """Where something has to be made of them, they are read before it, and not for the INSERT."""

    def fetch(*_: Any) -> None:
        raise Unavailable("no leader")

    block = Block(id="app:d.t:0:0:0", table="d.t", left_out=[LeftOut()])
    run = plan.Run("claim", 1, stamped=True)
    target = Target({}, 0, Nature(Window(0, None, "parts")), 0)
    fetcher: Any = SimpleNamespace(fetch=fetch)
    made = Maker(settings().loader, fetcher).make(Attempt(block, run, plan.Claim(1), target, ()))
    assert made == plan.NoAnswer("no leader", About.SERVER)
