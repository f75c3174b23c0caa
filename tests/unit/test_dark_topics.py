"""Tables whose block topics have a partition that takes no records wait, and no others."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from relay.core.state import Phase
from relay.errors import Unavailable
from relay.kafka.block_topics import BlockTopics
from relay.process.loop import RelayProcess
from tests.mock.rig import relay_settings
from tests.unit.test_block_topics import Narrow, Topics, of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from relay.kafka.partition_ends import Place

JOURNAL = "app.journal"
ALL = frozenset({"d.a", "d.b"})
A0, A1, B0 = (("app.blocks.d.a", 0), ("app.blocks.d.a", 1), ("app.blocks.d.b", 0))


class Leaders(Topics):
    """Brokers that say who leads.

    Attributes:
        nobody: leads these; None: nobody answers.
        asked: the partitions of each question.
    """

    def __init__(self) -> None:
        super().__init__()
        self.nobody: set[Place] | None = set()
        self.asked: list[set[Place]] = []
        """But for those about the journal."""

    def width(self, topic: str) -> int:
        return 2 if topic == A0[0] else 1

    def dark(self, places: Collection[Place]) -> frozenset[Place] | None:
        if not {JOURNAL}.issuperset(topic for topic, _ in places):
            self.asked.append(set(places))
        return None if self.nobody is None else frozenset(self.nobody.intersection(places))


@pytest.fixture
def brokers() -> Leaders:
    return Leaders()


@pytest.fixture
def topics(brokers: Leaders) -> BlockTopics:
    faked: Any = brokers
    made = BlockTopics("app", faked)
    made.ensure(ALL)
    return made


def dark(topics: BlockTopics, *owned: int) -> frozenset[str]:
    return topics.dark(ALL, frozenset(owned or (0,)))


def test_only_the_table_that_has_it_waits(brokers: Leaders, topics: BlockTopics) -> None:
    brokers.nobody = {A0}
    assert dark(topics) == {"d.a"}
    assert topics.dark({"d.b"}, frozenset({0})) == frozenset()


def test_a_partition_that_this_relay_does_not_write_is_none_of_its_affairs(
    brokers: Leaders, topics: BlockTopics
) -> None:
    brokers.nobody = {A1}
    assert dark(topics, 0) == frozenset()
    assert dark(topics, 0, 1, 7) == {"d.a"}, "another assignment"
    assert brokers.asked == [{A0, B0}, {A0, A1, B0}]


def test_it_is_asked_once_and_again_after_a_failure(brokers: Leaders, topics: BlockTopics) -> None:
    """A transaction costs no question of its own."""
    assert dark(topics) == frozenset()
    brokers.nobody = {A0}
    assert dark(topics) == frozenset()
    assert len(brokers.asked) == 1

    topics.doubt()
    assert dark(topics) == {"d.a"}


def test_without_an_answer_nothing_waits(brokers: Leaders, topics: BlockTopics) -> None:
    brokers.nobody = None
    assert dark(topics) == frozenset()


def test_a_table_goes_on_once_somebody_leads(brokers: Leaders, topics: BlockTopics) -> None:
    brokers.nobody = {A0, B0}
    assert dark(topics) == ALL
    brokers.nobody = {B0}

    assert topics.still_dark({"d.a"}) == frozenset()
    assert dark(topics) == {"d.b"}


def test_it_goes_on_once_another_relay_writes_there(brokers: Leaders, topics: BlockTopics) -> None:
    """Red before: it waited for a partition that is none of this relay's affairs any more."""
    brokers.nobody = {A1}
    assert dark(topics, 0, 1) == {"d.a"}

    topics.own(frozenset({0}))

    assert topics.still_dark(ALL) == frozenset()
    assert dark(topics, 0) == frozenset()
    assert dark(topics, 0, 1) == {"d.a"}, "it is asked again when the partition comes back"


def test_it_waits_on_for_a_partition_that_stays(brokers: Leaders, topics: BlockTopics) -> None:
    """And is not asked about the one that went."""
    brokers.nobody = {A0, A1}
    assert dark(topics, 0, 1) == {"d.a"}
    topics.own(frozenset({0}))
    assert topics.still_dark(ALL) == {"d.a"}
    assert brokers.asked[-1] == {A0}


def test_a_transaction_of_other_partitions_tells_it_too(
    brokers: Leaders, topics: BlockTopics
) -> None:
    brokers.nobody = {A1}
    dark(topics, 0, 1)
    assert topics.dark({"d.b"}, frozenset({0})) == frozenset()
    assert topics.still_dark(ALL) == frozenset()


def test_no_answer_is_no_leader(brokers: Leaders, topics: BlockTopics) -> None:
    """And brokers that have just been asked are left alone for a moment."""
    brokers.nobody = {A0}
    dark(topics)
    brokers.nobody = None
    assert topics.still_dark(ALL) == {"d.a"}
    brokers.nobody = set()
    asked = len(brokers.asked)
    assert topics.still_dark(ALL) == {"d.a"}
    assert len(brokers.asked) == asked


def test_a_table_without_a_topic_is_not_asked_about(brokers: Leaders, topics: BlockTopics) -> None:
    assert topics.dark({"", "d.refused"}, frozenset({0})) == frozenset()
    assert brokers.asked == []


def test_the_journal_is_waited_for(brokers: Leaders, topics: BlockTopics) -> None:
    """Before a transaction begins: each that has failed of it would hold its id."""
    brokers.nobody = {(JOURNAL, 1)}
    assert dark(topics, 0) == frozenset()
    with pytest.raises(Unavailable, match=r"no broker takes records for app\.journal\[1\]"):
        dark(topics, 0, 1)
    brokers.nobody = set()
    assert dark(topics, 0, 1) == frozenset()


@pytest.fixture
def process() -> Iterator[RelayProcess]:
    """Whose assignments read no truth."""
    made = RelayProcess(relay_settings("app", "127.0.0.1:9", 30.0, {}), threading.Event())
    made._state = replace(made._state, phase=Phase.STOPPED)
    yield made
    made._leave()


def test_an_assignment_tells_it(
    brokers: Leaders, topics: BlockTopics, process: RelayProcess
) -> None:
    """A transaction may not come: none of the relay's tables can be written."""
    process._tables.topics = topics
    brokers.nobody = {A1}
    dark(topics, 0, 1)
    process._assigned(frozenset({0}))
    assert topics.still_dark(ALL) == frozenset()


def test_an_assignment_that_needs_fewer_partitions_tells_it(process: RelayProcess) -> None:
    """Red before: tables whose topics could not grow waited for partitions of another relay."""
    brokers = Narrow(A0[0])
    process._tables.topics = topics = of(brokers)
    topics.need(2)
    topics.ensure({"d.a"})
    brokers.away = True
    topics.need(3)  # as a transaction of the assignment before
    assert topics.have({"d.a"}) == {"d.a"}
    process._assigned(frozenset({1, 3}))
    assert topics.have({"d.a"}) == frozenset()
