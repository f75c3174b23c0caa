"""Which topic a table's blocks go to, and what becomes of a table that gets none."""

from __future__ import annotations

import time
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError

from relay import names
from relay.core.events import Failure
from relay.errors import ConfigError, Refused, Unavailable
from relay.kafka.block_topics import BlockTopics
from relay.kafka.errors import TransactionFailed
from relay.program.waiting import FIRST_PAUSE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

PARTS = ("a", "b", "_", "a_b", "_a", "a_", "a__b", "_a_b", "a_b_c", "b_c", "__", "A")
TABLES = [f"{database}.{table}" for database, table in product(PARTS, PARTS)]


class Topics:
    """In the place of relay.kafka.topics: a broker's rule for names, and what it says no to.

    Attributes:
        says: what it answers about topics.
        tried: topics, in the order in which they were asked for.
        looked: names of each question whether there are such topics.
    """

    def __init__(
        self, *there: str, says: dict[str, ConfigError | Refused | Unavailable] | None = None
    ) -> None:
        self.there = list(there)
        self.says = says or {}
        self.writable = False
        self.made: list[dict[str, tuple[str, str]]] = []
        self.tried: list[str] = []
        self.looked: list[set[str]] = []

    def make_block_topics(self, wanted: dict[str, tuple[str, str]], least: int) -> set[str]:
        assert least == 1
        self.made.append(wanted)
        return {name for names_of_it in wanted.values() for name in names_of_it} - {*self.there}

    def look_for(self, topics: Collection[str]) -> tuple[set[str], set[str]]:
        self.looked.append({*topics})
        there = {*topics} & {*self.there}
        return {*topics} - there, there - self.says.keys()

    def describe(self, topic: str) -> str | None:
        return topic if topic in self.there else None

    def width(self, _topic: str) -> int:
        return 1

    def widen(self, topics: Collection[str], _wanted: int = 0) -> dict[str, Refused]:
        assert not topics
        return {}

    def ensure_block_topic(self, topic: str, least: int) -> None:
        assert least == 1
        self.tried.append(topic)
        if topic in self.says:
            raise self.says[topic]
        if topic in self.there:
            return
        if topic.replace(".", "_") in {one.replace(".", "_") for one in self.there}:
            raise Refused("collides", "another name", code=KafkaError.TOPIC_EXCEPTION)
        self.there.append(topic)

    def one_can_be_written(self) -> bool:
        return self.writable

    def forget(self, topic: str) -> None:
        """It is asked for again anyway."""


def of(topics: Topics, clock: Callable[[], float] = time.monotonic) -> BlockTopics:
    faked: Any = topics
    return BlockTopics("app", faked, clock)


def test_no_two_tables_names_are_the_same_for_kafka() -> None:
    for_kafka = {names.blocks_topic("app", table).replace(".", "_") for table in TABLES}
    assert len(for_kafka) == len(TABLES)


def test_a_topic_says_whose_it_is_by_either_name() -> None:
    for table in TABLES:
        for topic in names.blocks_topics("app", table):
            assert names.table_of_topic("app", topic) == table
            assert names.is_written(topic, "app")
    for other in ("app.journal", "app.blocks.a", "app2.blocks.a.b", "app.blocks.a-b-c"):
        assert not names.table_of_topic("app", other)


def test_the_longest_names_are_topics() -> None:
    table = f"{'d' * 100}.{'t' * 100}"
    assert max(map(len, names.blocks_topics("a" * 40, table))) == 249


@pytest.mark.parametrize("first", TABLES[::7])
def test_whatever_was_there_every_table_gets_a_topic(first: str) -> None:
    """Plain topics of an earlier version stay, and all others get one beside them."""
    plain = names.blocks_topics("app", first)[0]
    found = of(Topics(plain))
    found.ensure(TABLES)
    assert found.of(first) == plain
    assert len({found.of(table) for table in TABLES}) == len(TABLES)
    assert not any(map(found.refusal, TABLES))


def test_what_is_refused_is_said_and_tried_again() -> None:
    no = Refused("a policy says no", "ask its owner", code=KafkaError.POLICY_VIOLATION)
    topics = Topics(says={"app.blocks.a.b": no})
    found = of(topics)
    found.ensure(["a.b", "a.c"])
    assert found.refusal("a.b") == "no block topic for a.b: a policy says no; next: ask its owner"
    assert not found.refusal("a.c")
    topics.says.clear()
    found.retry()
    assert not found.refusal("a.b")


def test_a_missing_right_concerns_one_table_only_where_another_has_it() -> None:
    no = Refused("may not write", "grant it", code=KafkaError.TOPIC_AUTHORIZATION_FAILED)
    topics = Topics(says={"app.blocks.a.b": no})
    with pytest.raises(Refused):
        of(topics).ensure(["a.b"])
    beside = of(topics)
    beside.ensure(["a.b", "a.c"])
    assert beside.refusal("a.b")
    topics.writable = True
    alone = of(topics)
    alone.ensure(["a.b"])
    assert alone.refusal("a.b")


def test_a_wrong_password_concerns_all() -> None:
    no = Refused("wrong", "mend it", code=KafkaError.SASL_AUTHENTICATION_FAILED)
    with pytest.raises(Refused):
        of(Topics(says={"app.blocks.a.b": no})).ensure(["a.b", "a.c"])


def test_topics_of_many_tables_are_made_at_once() -> None:
    """By the name that each gets, unless it is there by either; then each is looked at."""
    no = Refused("a policy says no", "ask its owner", code=KafkaError.POLICY_VIOLATION)
    topics = Topics(says={"app.blocks.a.c": no})
    found = of(topics)
    found.ensure(["a_b.c", "a.b", "a.c"])

    either = {table: names.blocks_topics("app", table) for table in ("a_b.c", "a.b", "a.c")}
    plain = {"app.blocks.a.b": either["a.b"], "app.blocks.a.c": either["a.c"]}
    assert topics.made == [{"app.blocks.a_b-c": either["a_b.c"], **plain}]
    assert topics.there == ["app.blocks.a.b", "app.blocks.a_b-c"]
    found.ensure(["a.d"])
    found.retry()  # of what was refused, each says why by itself
    assert len(topics.made) == 1


class Narrow(Topics):
    """Topics of one partition, of which those of `fixed` cannot be grown."""

    def __init__(self, *there: str, fixed: Collection[str] = ()) -> None:
        super().__init__(*there)
        self.fixed, self.away = fixed, False
        self.grown: list[tuple[set[str], int]] = []
        self.widths: dict[str, int] = dict.fromkeys(there, 1)

    def make_block_topics(self, wanted: dict[str, tuple[str, str]], least: int) -> set[str]:
        assert least > 1
        return super().make_block_topics(wanted, 1)

    def ensure_block_topic(self, topic: str, least: int) -> None:
        assert topic in self.there
        assert least > 1

    def width(self, topic: str) -> int:
        return self.widths[topic]

    def widen(self, topics: Collection[str], wanted: int = 0) -> dict[str, Refused]:
        if topics and self.away:
            raise AWAY
        if topics:
            self.grown.append(({*topics}, wanted))
        self.widths |= {topic: wanted for topic in topics if topic not in self.fixed}
        return {topic: Refused("no", "grant") for topic in topics if topic in self.fixed}


def test_topics_of_many_tables_are_grown_at_once() -> None:
    """As a relay finds them that has joined; one that cannot be grown is its table's affair."""
    here, other, fixed = (names.blocks_topic("app", f"a.{name}") for name in "bcd")
    topics = Narrow(here, other, fixed, fixed=[fixed])
    found = of(topics)
    found.need(3)
    found.ensure(["a.b", "a.c", "a.d"])

    assert topics.grown == [({here, other, fixed}, 3)]
    assert [found.of(f"a.{name}") for name in "bcd"] == [here, other, ""]
    assert "no; next: grant" in found.refusal("a.d")
    assert not found.have(["a.b", "a.c", "a.d"])
    assert len(topics.grown) == 1, "as wide as they have to be"
    topics.fixed = ()
    found.retry()
    assert found.of("a.d") == fixed
    assert not found.refusal("a.d")


AWAY = Unavailable("too few brokers", "start them")
TOPIC = {table: f"app.blocks.{table}" for table in ("a.b", "a.c", "a.d")}


def test_a_topic_that_cannot_be_made_now_is_its_tables_affair() -> None:
    """Brokers with copies are away, or those that make topics. Red before: all tables waited."""
    now = 0.0
    topics = Topics(TOPIC["a.b"], says={TOPIC["a.c"]: AWAY})
    found = of(topics, lambda: now)
    assert found.have({"a.b", "a.c"}) == {"a.c"}
    assert found.of("a.b")
    assert not found.have({"a.b"})
    assert not found.refusal("a.c")
    asked = len(topics.tried)
    assert found.have({"a.b", "a.c"}) == {"a.c"}
    assert len(topics.tried) == asked, "not so soon"

    now += FIRST_PAUSE_SECONDS
    assert found.have({"a.c"}) == {"a.c"}
    assert found.have({"a.d"}) == {"a.d"}, "nor those that are new meanwhile"
    topics.says.clear()
    now += 2 * FIRST_PAUSE_SECONDS
    assert not found.have({"a.c", "a.d"})
    assert found.of("a.c")
    assert found.of("a.d")


def test_many_topics_that_cannot_be_made_are_waited_for_as_one() -> None:
    """Each would take its time-out; those that are there take none. Red before: all waited."""
    now = 0.0

    class Slow(Topics):
        def ensure_block_topic(self, topic: str, least: int) -> None:
            nonlocal now
            now += 0 if topic in self.there else 10
            super().ensure_block_topic(topic, least)

    topics = Slow(TOPIC["a.d"], says={TOPIC["a.b"]: AWAY, TOPIC["a.c"]: AWAY})
    found = of(topics, lambda: now)
    assert found.have(TOPIC) == {"a.b", "a.c"}
    assert topics.tried == [TOPIC["a.d"], TOPIC["a.b"]]


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("narrow", [False, True], ids=["new", "narrow"])
def test_topics_that_cannot_be_had_now_take_a_small_share(count: int, *, narrow: bool) -> None:
    """No controller is there, so each request that needs one takes its time-out, and nobody polls
    meanwhile. Red before: it took half of the time, however long the outage was."""
    now = 0.0

    class Slow(Topics):
        away = True

        def _time_out(self) -> None:
            nonlocal now
            now += 10 * self.away

        def width(self, _topic: str) -> int:
            return 1 if self.away else 2

        def widen(self, topics: Collection[str], _wanted: int = 0) -> dict[str, Refused]:
            if topics and self.away:
                self._time_out()
                raise AWAY
            return {}

        def make_block_topics(self, wanted: dict[str, tuple[str, str]], least: int) -> set[str]:
            self._time_out()
            return super().make_block_topics(wanted, least)

        def ensure_block_topic(self, topic: str, least: int) -> None:
            if topic not in self.there:
                self._time_out()
            super().ensure_block_topic(topic, least)

    tables = [*TOPIC][:count]
    there = [TOPIC[table] for table in tables] if narrow else []
    topics = Slow(*there, says={} if narrow else dict.fromkeys(TOPIC.values(), AWAY))
    found = of(topics, lambda: now)
    if narrow:
        topics.away = False
        found.ensure(tables)
        topics.away = True
        found.need(2)
    inside = 0.0
    while now < 600:
        begun = now
        assert found.have(tables) == {*tables}
        inside += now - begun
        now += 0.1
    assert inside < 0.25 * now
    topics.says, topics.away, back = {}, False, now
    while found.have(tables):
        now += 0.1
    assert now - back < 90


@pytest.mark.parametrize("table", ["a.d", "a_b.c", "a.b_c"])
def test_a_topic_that_is_there_waits_for_no_controller(table: str) -> None:
    """Its table's first message comes while another topic cannot be made. Red before: it waited
    for the next try to make that, four times as long as the last one had taken."""
    now = 0.0

    class Slow(Topics):
        def ensure_block_topic(self, topic: str, least: int) -> None:
            nonlocal now
            now += 0 if topic in self.there else 20
            super().ensure_block_topic(topic, least)

    plain, dashed = names.blocks_topics("app", table)
    topics = Slow(says={TOPIC["a.b"]: AWAY})
    found = of(topics, lambda: now)
    assert found.have({"a.b"}) == {"a.b"}
    now += 2
    topics.there.append(dashed if "_" in table else plain)
    assert found.have({"a.b", table, "a.c"}) == {"a.b", "a.c"}
    assert found.of(table) == topics.there[-1]
    assert found.have({"a.b", table, "a.c"}) == {"a.b", "a.c"}
    assert topics.looked[1:] == [{plain, dashed, *names.blocks_topics("app", "a.c")}], "once"
    assert topics.tried == [TOPIC["a.b"]], "nothing is made"


@pytest.mark.parametrize("beside", [set(), {"a.b"}], ids=["alone", "with-others"])
def test_a_topic_that_had_to_be_dashed_is_found_without_a_controller(beside: set[str]) -> None:
    """Red before: only a controller that refuses the plain name led to the dashed one, so the table
    waited until one was back."""
    plain, dashed = names.blocks_topics("app", "a.b_c")
    topics = Topics(dashed, says={plain: AWAY, TOPIC["a.b"]: AWAY})
    found = of(topics)
    assert found.have({"a.b_c", *beside}) == beside
    assert found.of("a.b_c") == dashed
    assert plain not in topics.tried


def test_a_dashed_topic_that_may_be_written_now_is_found_without_a_controller() -> None:
    plain, dashed = names.blocks_topics("app", "a.b_c")
    no = Refused("may not write", "grant it", code=KafkaError.POLICY_VIOLATION)
    topics = Topics("app.blocks.a_b.c", dashed, says={dashed: no})
    found = of(topics)
    found.ensure(["a.b_c"])
    assert "may not write" in found.refusal("a.b_c")
    topics.says = {plain: AWAY}
    found.retry()
    assert (found.of("a.b_c"), found.refusal("a.b_c")) == (dashed, "")


def test_a_dashed_name_of_which_this_user_may_know_nothing_is_left_alone() -> None:
    """Negative control: the right may be for the plain name alone, and nothing is in its way."""
    plain, dashed = names.blocks_topics("app", "a.b_c")
    no = Refused("may not describe", "grant it", code=KafkaError.TOPIC_AUTHORIZATION_FAILED)
    found = of(Topics(dashed, says={dashed: no}))
    found.ensure(["a.b_c"])
    assert found.of("a.b_c") == plain


def test_a_topic_that_is_there_and_may_not_be_written_is_judged_in_its_turn() -> None:
    """With the reason, by who would make it; beside an earlier version's name none is chosen."""
    now = 0.0
    table = "a_b.c"
    plain, dashed = names.blocks_topics("app", table)
    no = Refused("may not write", "grant it", code=KafkaError.POLICY_VIOLATION)
    topics = Topics(plain, dashed, says={TOPIC["a.b"]: AWAY, plain: no})
    found = of(topics, lambda: now)
    assert found.have({"a.b"}) == {"a.b"}
    assert found.have({table}) == {table}
    assert not found.refusal(table)
    now += FIRST_PAUSE_SECONDS
    assert not found.have({table})
    assert "may not write" in found.refusal(table)


def test_who_needs_a_topic_at_once_hears_why_there_is_none() -> None:
    """As a producer that makes an encoder."""
    found = of(Topics(says={TOPIC["a.b"]: AWAY}))
    with pytest.raises(Unavailable, match="too few brokers"):
        found.ensure(["a.b", "a.c"])
    assert found.of("a.c")


def test_a_topic_that_cannot_grow_now_is_its_tables_affair() -> None:
    now = 0.0
    here, other = TOPIC["a.b"], TOPIC["a.c"]
    topics = Narrow(here, other)
    found = of(topics, lambda: now)
    found.need(3)
    topics.widths[other], topics.away = 3, True
    assert found.have({"a.b", "a.c"}) == {"a.b"}
    assert found.width("a.c") == 3
    topics.away = False
    assert found.have({"a.b"}) == {"a.b"}, "not asked so soon"
    now += FIRST_PAUSE_SECONDS
    assert not found.have({"a.b"})
    assert topics.grown == [({here}, 3)]


def test_a_topic_that_is_wide_enough_again_is_waited_for_no_more() -> None:
    """Red before: it counted as one that brokers could not grow, so pauses grew for ever."""
    now = 0.0
    topics = Narrow(TOPIC["a.b"], TOPIC["a.c"])
    found = of(topics, lambda: now)
    found.need(2)
    found.ensure({"a.b"})
    topics.away = True
    found.need(3)
    assert found.have({"a.b"}) == {"a.b"}
    found.need(2)
    topics.away, now = False, now + FIRST_PAUSE_SECONDS
    assert not found.have({"a.b", "a.c"})

    topics.away = True
    found.need(3)
    assert found.have({"a.c"}) == {"a.c"}
    topics.away, now = False, now + FIRST_PAUSE_SECONDS
    assert not found.have({"a.c"})


def test_what_may_be_granted_is_asked_for_seldom_while_nobody_answers() -> None:
    """Red before: it was an error of ClickHouse, which nobody asked then."""
    now = 0.0
    no = Refused("a policy says no", "ask its owner", code=KafkaError.POLICY_VIOLATION)
    topics = Topics(TOPIC["a.b"], says={TOPIC["a.c"]: no})
    found = of(topics, lambda: now)
    found.ensure(["a.b", "a.c"])
    topics.says[TOPIC["a.c"]] = AWAY
    for _ in range(3):
        found.retry()
    assert topics.tried.count(TOPIC["a.c"]) == 2
    assert found.refusal("a.c")
    topics.says.clear()
    now += FIRST_PAUSE_SECONDS
    found.retry()
    assert not found.refusal("a.c")


def test_a_busy_tables_topic_that_cannot_grow_now_keeps_nobody() -> None:
    now = 0.0
    topics = Narrow(TOPIC["a.b"])
    found = of(topics, lambda: now)
    found.need(2)
    found.ensure(["a.b"])
    topics.away = True
    found.widen_soon("a.b")
    found.retry()
    topics.away = False
    found.retry()
    assert len(topics.grown) == 1, "not asked so soon"
    now += FIRST_PAUSE_SECONDS
    found.retry()
    assert topics.grown[1:] == [({TOPIC["a.b"]}, 0)]


def test_a_right_that_went_is_one_tables_affair_though_a_broker_was_silent() -> None:
    """Red before: what had been found was forgotten with the silence, and the relay ended."""
    now = 0.0
    topics = Topics(*TOPIC.values())
    found = of(topics, lambda: now)
    found.ensure(TOPIC)
    topics.says[TOPIC["a.d"]] = AWAY
    denied = KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert found.learn(TransactionFailed(Failure.REFUSED, "may not write", denied), {*TOPIC})

    topics.says[TOPIC["a.d"]] = Refused("may not write", "grant it", code=denied)
    assert not found.have(TOPIC)
    assert found.refusal("a.d")
    assert [found.refusal(table) for table in ("a.b", "a.c")] == ["", ""]
