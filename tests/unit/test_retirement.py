"""relay.process.retire_plan: which transactional ids may be ended."""

from __future__ import annotations

import pytest

from relay.process import retire
from relay.process.retire_plan import Retirement, absent, plan
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


def test_members_that_the_group_does_not_name_are_told_with_those_that_it_does() -> None:
    """A misspelled one is like one that is gone: Kafka names no transactional ids."""
    (line,) = absent(["r-3", "r-0", "r-3"], {"r-1": (), "r-0": (0,)})
    assert line.startswith("r-3: the group has no such member (it has 2 members: r-0, r-1)")
    assert next(absent(["r-3"], [])).startswith("r-3: the group has no such member (it has none)")
    assert list(absent(["r-0"], ["r-0"])) == []
