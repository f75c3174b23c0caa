"""Hypothesis drives the model: two relays, two loaders, shrinking what it finds.

`python -m pytest tests/model/test_machine.py --hypothesis-profile=long` goes 100 000 steps.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.model.quiet import settle
from tests.model.records import SOURCE
from tests.model.world import World, limits, log
from tests.profiles import is_long

pytestmark = pytest.mark.search

PICKS = st.integers(0, 1_000)
LONG = is_long()


class RelayMachine(RuleBasedStateMachine):
    """Turns are what happens by itself, faults what goes wrong; both are picked by number."""

    world: World

    @initialize(
        max_rows=st.integers(1, 4),
        max_age_ms=st.sampled_from((50, 10_000)),
        max_per_second=st.sampled_from((1.0, 1_000.0)),
        max_reread=st.sampled_from((3, 1_000)),
        flush_ms=st.sampled_from((100, 100_000)),
        marks_at_once=st.booleans(),
    )
    def start(
        self,
        max_rows: int,
        max_age_ms: int,
        max_per_second: float,
        max_reread: int,
        flush_ms: int,
        marks_at_once: bool,
    ) -> None:
        self.world = World(
            [log("x", "y", "x"), log("x", "x", "|", "y!")],
            relay_limits=limits(
                max_rows=max_rows,
                max_age_ms=max_age_ms,
                max_per_second=max_per_second,
                max_reread=max_reread,
                flush_point_interval_ms=flush_ms,
            ),
            marks_at_once=marks_at_once,
            loaders=2,
        )
        for action in (("boot", "a"), ("boot", "b"), ("move", 0, "a"), ("move", 1, "b")):
            self.world.do(action)

    @rule(pick=PICKS, times=st.integers(1, 8))
    def turn(self, pick: int, times: int) -> None:
        """One process, or loader, goes some steps."""
        for _ in range(times):
            turns = self.world.turns()
            if turns:
                self.world.do(turns[pick % len(turns)])

    @rule(pick=PICKS)
    def fault(self, pick: int) -> None:
        faults = self.world.faults()
        self.world.do(faults[pick % len(faults)])

    @rule(partition=st.integers(0, 1), item=st.sampled_from(("x", "y", "x!", "y-", "|")))
    def append(self, partition: int, item: str) -> None:
        if len(self.world.kafka.log((SOURCE, partition)).entries) < 60:
            self.world.do(("append", partition, log(item)[0]))

    @rule(ms=st.sampled_from((1, 60, 1_000)))
    def tick(self, ms: int) -> None:
        self.world.do(("tick", ms))

    @rule(pick=PICKS, table=st.sampled_from("xy"))
    def change_schema(self, pick: int, table: str) -> None:
        ready = [u for u, m in self.world.members.items() if m.booted and not m.todo]
        if ready:
            self.world.do(("schema", ready[pick % len(ready)], table))

    @invariant()
    def nothing_is_wrong(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        """After any history all comes to rest, with every row once in ClickHouse."""
        if hasattr(self, "world"):
            settle(self.world)


TestRelayMachine = RelayMachine.TestCase
TestRelayMachine.settings = settings(
    max_examples=1_000 if LONG else 100,
    stateful_step_count=100 if LONG else 40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
