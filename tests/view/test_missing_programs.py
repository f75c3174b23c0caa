"""Which silence is a trouble: nobody relays, nobody loads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relay.operate.view.facts import ConsumerGroup, GroupMember, HiddenMessages
from relay.operate.view.missing_programs import (
    HIDDEN_MS,
    LOADER_MS,
    UnsettledBlocks,
    find_held_back,
    find_missing_programs,
)

NOW = 1_700_000_000_000  # 2023-11-14 22:13:20 UTC
MINUTE = 60_000
WELL = ConsumerGroup("stable", (GroupMember("a", "/h", (0, 1)),))
ALL = {0: "a", 1: "a"}
REST = UnsettledBlocks(0)


def told(
    group: ConsumerGroup = WELL,
    owners: dict[int, str] = ALL,
    unread: int | None = 0,
    waiting: UnsettledBlocks = REST,
) -> list[str]:
    return [one.text for one in find_missing_programs(NOW, group, owners, unread, waiting)]


def test_all_is_well() -> None:
    assert told() == []
    assert told(unread=10_000) == [], "a relay that is behind is at work"


@pytest.mark.parametrize("state", ["empty", "dead"])
def test_no_relay(state: str) -> None:
    empty = ConsumerGroup(state)
    assert told(empty) == ["no relay is in the group"]
    assert told(empty, unread=79) == ["no relay is in the group; 79 offsets wait to be read"]
    assert told(empty, unread=None) == ["no relay is in the group"]


@pytest.mark.parametrize(
    ("owners", "text"),
    [
        ({0: "a", 1: ""}, "no relay has partition 1"),
        ({0: "", 1: ""}, "no relay has partition 0, 1"),
        (
            dict.fromkeys(range(24), ""),
            "no relay has partition 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 14 more",
        ),
    ],
)
def test_partitions_that_nobody_has(owners: dict[int, str], text: str) -> None:
    assert told(owners=owners) == [text]
    moving = replace(WELL, state="preparing_rebalance")
    assert told(moving, owners) == [], "they are just being given out"


@pytest.mark.parametrize(
    ("waiting", "text"),
    [
        # It had nothing to do for a while, and settled nothing.
        (
            UnsettledBlocks(1, NOW - 2 * MINUTE, NOW - 15 * MINUTE),
            "since 21:58 UTC while 1 block waits",
        ),
        (
            UnsettledBlocks(62, NOW - 20 * MINUTE, NOW - 15 * MINUTE),
            "since 21:58 UTC while 62 blocks wait",
        ),
        (
            UnsettledBlocks(3, NOW - 20 * MINUTE, NOW - 1_500 * MINUTE),
            "since 2023-11-13 21:13 UTC while 3 blocks wait",
        ),
        (
            UnsettledBlocks(3, NOW - 20 * MINUTE),
            "yet, and 3 blocks wait, the oldest since 21:53 UTC",
        ),
    ],
)
def test_no_loader(waiting: UnsettledBlocks, text: str) -> None:
    assert told(waiting=waiting) == [f"no loader has settled a block {text}"]


@pytest.mark.parametrize(
    "waiting",
    [
        UnsettledBlocks(0, 0, NOW - 15 * MINUTE),
        UnsettledBlocks(None),
        UnsettledBlocks(5, NOW - 15 * MINUTE, NOW - LOADER_MS),
        UnsettledBlocks(5, NOW - LOADER_MS, NOW - 15 * MINUTE),
        UnsettledBlocks(5, NOW + MINUTE),
    ],
    ids=["nothing waits", "not known", "it settles", "it has just come", "a clock is ahead"],
)
def test_a_loader_that_may_well_live(waiting: UnsettledBlocks) -> None:
    assert told(waiting=waiting) == []


def test_a_transaction_that_hangs_in_the_source() -> None:
    hidden = {
        1: HiddenMessages(7, NOW - 9 * MINUTE),
        0: HiddenMessages(50_000, NOW - 15 * MINUTE),
        2: HiddenMessages(3, NOW),
    }
    (found,) = find_held_back(NOW, hidden)
    assert found.kind == "source_held_back"
    assert found.text.startswith(
        "an open transaction hides 50,007 offsets of source partition 0, 1 from relays, the oldest "
        "since 21:58 UTC"
    )


@pytest.mark.parametrize("since_ms", [NOW - HIDDEN_MS, NOW + MINUTE, None])
def test_a_transaction_that_may_well_end(since_ms: int | None) -> None:
    """Also one whose first message nobody may read, or has a timestamp of its producer's own."""
    assert list(find_held_back(NOW, {0: HiddenMessages(5, since_ms)})) == []
