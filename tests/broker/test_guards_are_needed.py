"""Negative controls: each scenario goes red when its guard is taken away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.broker.test_aborted_source_messages_never_come_through import (
    test_aborted_source_messages_never_come_through as aborted_source,
)
from tests.broker.test_kill_after_commit_repeats_nothing import (
    test_kill_after_commit_repeats_nothing as kill_after_commit,
)
from tests.broker.test_kill_before_commit_leaves_nothing_visible import (
    test_kill_before_commit_leaves_nothing_visible as kill_before_commit,
)
from tests.broker.test_rebalance_aborts_the_open_transaction import (
    test_rebalance_aborts_the_open_transaction as rebalance,
)
from tests.broker.test_second_producer_fences_the_first import (
    test_second_producer_under_one_transactional_id_fences_the_first as second_producer,
)
from tests.broker.test_zombie_cannot_commit import (
    test_relay_stopped_past_its_session_timeout_cannot_commit as zombie,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.broker.pipeline import Pipeline

# Guard, scenario, its step, and where in the scenario's own words the anomaly shows.
SCENARIOS: list[tuple[str, Callable[..., None], tuple[str, ...], str]] = [
    ("read_committed", aborted_source, (), "self.rows() == self.sent"),
    ("stable_identity", second_producer, (), "the end of the first"),
    ("generation", zombie, ("before_send_offsets",), "the zombie committed"),
    ("generation", rebalance, (), "a transaction of an old generation committed"),
    ("committed_truth", kill_after_commit, (), "self.rows() == self.sent"),
    ("one_transaction", kill_before_commit, ("before_commit",), "c.blocks"),
]


@pytest.mark.parametrize(("guard", "scenario", "arguments", "anomaly"), SCENARIOS)
def test_a_scenario_fails_without_its_guard(
    pipeline: Pipeline,
    guard: str,
    scenario: Callable[..., None],
    arguments: tuple[str, ...],
    anomaly: str,
) -> None:
    """The same scenario, run with relays that lack the guard, finds the anomaly."""
    pipeline.without = guard
    pipeline.patience_seconds = 25.0

    with pytest.raises(AssertionError) as found:
        scenario(pipeline, *arguments)

    where = str(found.traceback[-1].statement) + str(found.value)
    assert anomaly in where, f"red for another reason: {where}"
