"""What is decided where the source has more partitions than before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relay import names
from relay.core.takeover import came_later
from relay.errors import Refused, Unavailable
from relay.kafka import topics as topics_module
from relay.kafka.block_topics import BlockTopics
from relay.kafka.topics import TopicFacts, Topics
from relay.process.coverage import FIRST_SECONDS, Coverage, left_over
from relay.program.waiting import FIRST_PAUSE_SECONDS
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


class Unasked(Coverage):
    """Whose group leaves partition 3 to nobody, and who counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__(reach.nobody(), lambda: self.now)
        self.now, self.asked = 0.0, 0

    def _ask_group(self) -> frozenset[int] | None:
        self.asked += 1
        return frozenset({3})


def test_who_has_every_partition_does_not_start_a_process_to_ask_who_has_them() -> None:
    coverage = Unasked()
    coverage.rebalanced()
    coverage.now += FIRST_SECONDS
    assert coverage.left_over({0, 1, 2}, 3) == frozenset()
    assert coverage.asked == 0
    coverage.rebalanced()
    coverage.now += FIRST_SECONDS
    assert coverage.left_over({0, 1, 2}, 4) == {3}  # the source has grown
    assert coverage.asked == 1


def test_who_has_no_partition_asks() -> None:
    coverage = Unasked()
    coverage.rebalanced()
    coverage.now += FIRST_SECONDS
    assert coverage.left_over((), 0) == {3}
    assert coverage.asked == 1


class Narrow(Topics):
    """Of which some do not grow."""

    def __init__(self, **widths: int) -> None:
        super().__init__(reach.nobody())
        self.widths = {name.replace("_", "."): width for name, width in widths.items()}
        self.now = 0.0
        self.stuck = {"shop.dead"}
        self.denied: set[str] = set()
        self.away: set[str] = set()
        self._ready = set(self.widths) - {"rows"}

    def describe(self, topic: str, rights: object = ()) -> TopicFacts | None:  # noqa: ARG002
        width = self.widths.get(topic)
        return None if width is None else TopicFacts("id", width)

    def _grow(self, topic: str, partitions: int) -> None:
        if topic not in self.stuck:
            self.widths[topic] = partitions

    def _grow_all(self, topics: Collection[str], wanted: int) -> dict[str, Refused]:
        for topic in set(topics) - self.away:
            self._grow(topic, wanted)
        if self.away.intersection(topics):
            raise Unavailable("too few brokers", "start them")
        return {topic: Refused("no right", "grant it") for topic in self.denied & set(topics)}

    def _look_at(self, topics: Collection[str]) -> set[str]:
        self._widths |= {topic: self.widths[topic] for topic in topics if topic in self.widths}
        return set(topics) - self.widths.keys()


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


def test_each_topic_has_a_wait_of_its_own(
    monkeypatch: pytest.MonkeyPatch, block_topics: tuple[Narrow, BlockTopics]
) -> None:
    """One that was not waited for to the end says nothing of the next, nor of itself later."""
    now = [100.0]
    monkeypatch.setattr(topics_module.time, "monotonic", lambda: now[0])
    topics, _ = block_topics
    first, second, _ = topics.stuck = sorted(topics._widths)
    with pytest.raises(Unavailable, match=first):
        topics.widen([first])
    now[0] += 11 * topics_module.GROW_SECONDS  # a rebalance took its partition away meanwhile
    for topic in (second, first):
        with pytest.raises(Unavailable, match=topic):
            topics.widen([topic])
    now[0] += topics_module.GROW_SECONDS
    assert topics.widen([first]).keys() == {first}


@pytest.fixture
def block_topics(monkeypatch: pytest.MonkeyPatch) -> tuple[Narrow, BlockTopics]:
    """Three tables with block topics of one partition each."""
    monkeypatch.setattr(topics_module.time, "sleep", lambda _: None)
    tables = ("d.t", "d.u", "d.v")
    found = {table: names.blocks_topic("shop", table) for table in tables}
    topics = Narrow(rows=4)
    topics.widths |= dict.fromkeys(found.values(), 1)
    topics._widths = dict.fromkeys(found.values(), 1)
    topics._partitions = 4
    of_tables = BlockTopics("shop", topics, lambda: topics.now)
    of_tables._found = found
    return topics, of_tables


def test_block_topics_grow_as_needed(block_topics: tuple[Narrow, BlockTopics]) -> None:
    _, of_tables = block_topics
    of_tables.need(3)
    assert not of_tables.have({"d.t", "d.u"})
    assert [of_tables.width(table) for table in ("d.t", "d.u", "d.v")] == [3, 3, 1]
    of_tables.need(1)
    assert not of_tables.have({"d.t", "d.v"})
    assert [of_tables.width(table) for table in ("d.t", "d.v", "d.nothing")] == [3, 1, 0]


def test_a_busy_table_gets_as_many_partitions_as_the_source(
    block_topics: tuple[Narrow, BlockTopics],
) -> None:
    """Where that is not allowed, its blocks stay where they are, and it is said once."""
    topics, of_tables = block_topics
    topics.stuck.add(of_tables.of("d.u"))
    topics.denied.add(of_tables.of("d.u"))
    for _ in range(2):
        of_tables.widen_soon("d.t")
        of_tables.widen_soon("d.u")
        of_tables._grow_busy()
    assert [of_tables.width(table) for table in ("d.t", "d.u", "d.v")] == [4, 1, 1]
    assert of_tables._stay_narrow == {"d.u"}
    assert not of_tables.refusal("d.u")


def test_a_block_topic_that_does_not_grow_is_its_tables_affair(
    block_topics: tuple[Narrow, BlockTopics], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other topics grow; its table has no block topic, and those messages are dead letters."""
    now = [100.0]
    monkeypatch.setattr(topics_module.time, "monotonic", lambda: now[0])
    topics, of_tables = block_topics
    topics.stuck.add(stuck := of_tables.of("d.t"))
    of_tables.need(2)
    assert of_tables.have({"d.t", "d.u"}) == {"d.t"}, "and the other goes on meanwhile"
    assert not of_tables.refusal("d.t")
    now[0] += topics_module.GROW_SECONDS
    topics.now += FIRST_PAUSE_SECONDS
    assert not of_tables.have({"d.t", "d.u"})
    why = f"no block topic for d.t: topic {stuck} has 1 partitions, but needs 2"
    assert of_tables.refusal("d.t").startswith(why)
    assert not of_tables.refusal("d.u")
    assert (of_tables.of("d.t"), of_tables.width("d.u")) == ("", 2)


@pytest.mark.parametrize("pause", [0.1, 63.0, 240.0])
def test_a_topic_that_never_grows_is_given_up_however_seldom_it_is_asked_about(
    block_topics: tuple[Narrow, BlockTopics], monkeypatch: pytest.MonkeyPatch, pause: float
) -> None:
    """A refresh that takes 3 s comes once a minute. Red before: of those 63 s apart each was the
    first, and all of them looked at the topic in vain, for ever."""
    now = [100.0]
    monkeypatch.setattr(topics_module.time, "monotonic", lambda: now[0])
    topics, of_tables = block_topics
    topics.stuck.add(of_tables.of("d.t"))
    while not of_tables._stay_narrow:
        of_tables.widen_soon("d.t")
        of_tables.retry()
        now[0] += pause
        topics.now = now[0]
        assert now[0] < 100 + topics_module.GROW_SECONDS + 2 * pause + FIRST_PAUSE_SECONDS * 30
    assert now[0] > 100 + topics_module.GROW_SECONDS
    assert not of_tables.refusal("d.t")


def test_what_has_grown_is_known_though_another_topic_cannot_grow_now(
    block_topics: tuple[Narrow, BlockTopics],
) -> None:
    """Its copies' brokers are away. Red before: all tables waited."""
    topics, of_tables = block_topics
    topics.away.add(of_tables.of("d.t"))
    of_tables.need(2)
    assert of_tables.have({"d.t", "d.u"}) == {"d.t"}
    assert of_tables.width("d.u") == 2


def test_a_block_topic_that_was_deleted_is_its_tables_affair(
    block_topics: tuple[Narrow, BlockTopics],
) -> None:
    topics, of_tables = block_topics
    del topics.widths[of_tables.of("d.t")]
    topics.stuck.add(of_tables.of("d.t"))
    of_tables.need(2)
    assert not of_tables.have({"d.t", "d.u"})
    assert "does not exist any more" in of_tables.refusal("d.t")
    assert of_tables.width("d.u") == 2


def test_a_topic_that_was_deleted_is_named() -> None:
    topics = Narrow(rows=4, shop_journal=2)
    topics._followed = 2
    topics._ready.add("shop.dead")
    with pytest.raises(Refused, match=r"topic shop\.dead does not exist any more"):
        topics.follow({3})
