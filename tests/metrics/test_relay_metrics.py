"""Every metric of the relay is moved by something that happens, to the value it should have."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest

from relay.core.step import step
from relay.operate.metrics.client_definitions import CLIENTS
from relay.operate.metrics.definitions import CURRENT, RECORDED
from relay.program.metric import HISTOGRAM, OTHERS, Bounded, Metric
from tests.core.build import arrival, buffer, limits, partition, polled, with_limits
from tests.metrics.rig import Rig
from tests.metrics.scenarios import SCENARIOS, Scenario


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_what_happens_moves_its_metrics(scenario: Scenario) -> None:
    scenario(Rig())


def moved(scenarios: Iterable[Scenario]) -> set[str]:
    """Names of the metrics that any of them changed, or brought into being."""
    found: set[str] = set()
    for scenario in scenarios:
        rig = Rig()
        before = rig.samples()
        scenario(rig)
        found |= {key[0] for key, value in rig.samples().items() if before.get(key) != value}
    return found


def unmoved(metrics: Iterable[Metric], names: set[str]) -> set[str]:
    return {one.name for one in metrics if _sample(one) not in names}


def _sample(one: Metric) -> str:
    return f"{one.name}_count" if one.kind == HISTOGRAM else one.name


# Its labels say it all: it is there from the beginning.
STEADY = {"relay_info"}


def test_every_metric_is_moved_by_a_scenario() -> None:
    assert unmoved((*RECORDED, *CURRENT), moved(SCENARIOS)) == STEADY


def test_a_metric_that_nothing_moves_is_found() -> None:
    """Negative control: without the scenario that moves them, they are named."""
    left = [one for one in SCENARIOS if one.__name__ != "tables_change"]
    missing = unmoved((*RECORDED, *CURRENT), moved(left)) - STEADY
    assert missing == {
        "relay_schema_changes_total",
        "relay_schema_refresh_seconds",
        "relay_schema_refresh_failures_total",
    }


def test_nothing_is_shown_that_is_not_listed() -> None:
    listed = {one.name for one in (*RECORDED, *CURRENT, *CLIENTS)}
    for scenario in SCENARIOS:
        rig = Rig()
        scenario(rig)
        families = {family.name for family in rig.registry.collect()}
        assert families <= {name.removesuffix("_total") for name in listed}


def test_invented_tables_share_one_name() -> None:
    """A producer may write any name into its header; Prometheus keeps a bounded number."""
    bounded = Bounded(most=3)
    assert [bounded(f"d.t{i}") for i in range(5)] == ["d.t0", "d.t1", "d.t2", OTHERS, OTHERS]
    assert bounded("d.t1") == "d.t1"


def calls(messages: int) -> int:
    """Python functions called to record one poll of so many messages, and their block."""
    rig = Rig(with_limits(limits(max_rows=messages), p0=partition()))
    before, event = rig.state, polled(0, arrival("d.a", *range(messages)))
    after, effects = step(before, event)
    seen = Counter[str]()
    gc.disable()  # a collection calls what is in gc.callbacks; Hypothesis puts a function there
    sys.setprofile(lambda _, kind, __: seen.update([kind]))
    try:
        rig.recorder.polled(0.1, messages, 10 * messages)
        rig.recorder.stepped(before, event, after, effects)
    finally:
        sys.setprofile(None)
        gc.enable()
    rig.state = after
    rig.through()
    assert rig.value("relay_messages_committed_total", table="d.a", partition=0) == messages
    return seen["call"]


def test_recording_costs_nothing_per_message() -> None:
    """A poll of 20 000 messages takes as many calls as one of two."""
    assert calls(20_000) == calls(2) > 5


@pytest.mark.parametrize("bound", [None, 1_000_000])
def test_a_relay_whose_brokers_are_slow_is_alive_while_it_commits(bound: int | None) -> None:
    """A new process would begin without the bound, and fail; else a buffer so old is stuck."""
    owned = partition(buffers={"d.x": buffer(0, opened_at_ms=0)})
    rig = Rig(replace(with_limits(limits(max_age_ms=750), p0=owned), most_bytes=bound))
    rig.vitals.state, rig.vitals.committed_at, rig.now = rig.state, 390.0, 400.0
    assert ("partitions" in rig.failed()) is (bound is None)
