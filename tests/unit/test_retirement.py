"""relay.process.retire: which transactional ids may be ended."""

from __future__ import annotations

import pytest

from relay.process import retire
from relay.process.retire import Retirement, plan, unknown
from tests.config.test_kafka_clients import settings


def test_a_member_that_is_gone_has_no_obstacle() -> None:
    assert plan("shop", ["r-3"], {"r-0": (0, 1)}) == [Retirement("r-3", "shop.relay.r-3", None)]
    assert plan("shop", ["r-3"], {})[0].obstacle is None


def test_a_member_of_the_group_has_one_even_without_partitions() -> None:
    """Static members stay until their session ends, and idle ones hold none."""
    busy, idle = plan("shop", ["r-0", "r-1"], {"r-0": (0, 7), "r-1": ()})
    assert busy.obstacle is not None
    assert "partitions: 0, 7" in busy.obstacle
    assert idle.obstacle is not None
    assert "partitions: none" in idle.obstacle


def test_each_member_is_named_once_in_the_order_given() -> None:
    found = plan("shop", ["r-3", "r-1", "r-3"], {})
    assert [one.member for one in found] == ["r-3", "r-1"]


def test_an_obstacle_is_never_passed_over() -> None:
    """Whoever calls it."""
    with pytest.raises(ValueError, match="is in the group"):
        retire.end(settings(), Retirement("r-0", "shop.relay.r-0", (0,)))


def test_members_that_nobody_knows_are_named_with_those_that_are_known() -> None:
    """By the group or by the journal: one that is gone is in the journal alone."""
    group, recorded = {"r-1": (), "r-0": (0,)}, {"r-0", "r-12"}
    assert list(unknown(["r-0", "r-1", "r-12"], group, recorded)) == []
    (line,) = unknown(["r-112", "r-0", "r-112"], group, recorded)
    assert line == (
        "neither the group nor the journal names a member 'r-112'; they name r-0, r-1, r-12; "
        "did you mean r-12 or r-1?"
    )
    (line,) = unknown(["z"], group, recorded)
    assert "did you mean" not in line
    assert next(unknown(["r-3"], (), ())).endswith("; they name nobody")
    (line,) = unknown(["z"], (), [f"pod-{number:02}" for number in range(25)])
    assert line.endswith("pod-18, pod-19 and 5 more")
