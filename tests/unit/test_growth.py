"""What is decided where the source has more partitions than before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relay.core.takeover import came_later
from relay.errors import Refused, Unavailable
from relay.kafka import topics as topics_module
from relay.kafka.block_topics import BlockTopics
from relay.kafka.topics import TopicFacts, Topics
from relay.process.coverage import left_over
from tests import reach

if TYPE_CHECKING:
    from collections.abc import Collection


@pytest.mark.parametrize(
    ("partition", "widths", "later"),
    [
        (2, (), False),  # nobody has begun: the app is new
        (1, (2,), False),  # a first start of several relays, and this one comes second
        (2, (2,), True),
        (2, (4, 2), True),  # the source grew before the last of them began
        (0, (0,), True),  # the oldest record is gone, or does not say
        (3, (4, 4), False),
    ],
)
def test_a_partition_is_new_in_a_known_app(
    partition: int, widths: Collection[int], *, later: bool
) -> None:
    assert came_later(partition, widths) is later


def test_partitions_that_nobody_has() -> None:
    assert left_over(4, [[0], [1, 2]]) == {3}
    assert left_over(2, [[0, 1, 2]]) == frozenset()
    assert left_over(2, []) == {0, 1}


class Narrow(Topics):
    """Of which some do not grow."""

    def __init__(self, **widths: int) -> None:
        super().__init__(reach.nobody())
        self.widths = {name.replace("_", "."): width for name, width in widths.items()}
        self.stuck = {"shop.dead"}
        self._ready = set(self.widths) - {"rows"}

    def describe(self, topic: str, rights: object = ()) -> TopicFacts | None:  # noqa: ARG002
        width = self.widths.get(topic)
        return None if width is None else TopicFacts("id", width)

    def _grow(self, topic: str, partitions: int) -> None:
        if topic not in self.stuck:
            self.widths[topic] = partitions


def test_all_topics_grow_along() -> None:
    """And nothing is asked where the assignment has no partition that is new."""
    topics = Narrow(rows=4, shop_journal=2, shop_schemas=1)
    topics._followed = 2
    assert not topics.follow({0, 1})
    assert topics.follow({2, 3})
    assert topics.widths == {"rows": 4, "shop.journal": 4, "shop.schemas": 1}
    assert not topics.follow({2, 3})


def test_a_wait_for_a_topic_that_does_not_grow_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(topics_module.time, "monotonic", lambda: now[0])
    topics = Narrow(rows=4, shop_journal=2, shop_dead=2)
    topics._followed = 2
    with pytest.raises(Unavailable, match=r"topic shop\.dead has 2 partitions, but needs 4"):
        topics.follow({3})
    now[0] += topics_module.GROW_SECONDS
    with pytest.raises(Refused, match=r"shop\.dead has 2 partitions") as refused:
        topics.follow({3})
    assert "--alter --topic shop.dead --partitions 4" in refused.value.next_step


def test_a_block_topic_that_does_not_grow_is_its_tables_affair(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other topics grow; its table has no block topic, and those messages are dead letters."""
    now = [100.0]
    monkeypatch.setattr(topics_module.time, "monotonic", lambda: now[0])
    topics = Narrow(rows=4, shop_journal=2, shop_blocks_d_t=2, shop_blocks_d_u=2)
    topics._followed = 2
    of_tables = BlockTopics("shop", topics)
    of_tables._found = {"d.t": "shop.blocks.d.t", "d.u": "shop.blocks.d.u"}
    topics.stuck.add("shop.blocks.d.t")
    with pytest.raises(Unavailable):
        topics.follow({3})
    now[0] += topics_module.GROW_SECONDS
    assert topics.follow({3})
    assert topics.widths["shop.journal"] == topics.widths["shop.blocks.d.u"] == 4
    why = "no block topic for d.t: topic shop.blocks.d.t has 2 partitions, but needs 4"
    assert of_tables.refusal("d.t").startswith(why)
    assert not of_tables.refusal("d.u")
    assert (of_tables.of("d.t"), of_tables.of("d.u")) == ("", "shop.blocks.d.u")


def test_a_topic_that_was_deleted_is_named() -> None:
    topics = Narrow(rows=4, shop_journal=2)
    topics._followed = 2
    topics._ready.add("shop.dead")
    with pytest.raises(Refused, match=r"topic shop\.dead does not exist any more"):
        topics.follow({3})
