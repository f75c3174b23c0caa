"""relay.kafka.topics: what it asks the brokers, and in which order."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented, not in __all__
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from relay.errors import ContractBroken, Refused, Unavailable
from relay.kafka.admin import in_requests
from relay.kafka.topics import Topics
from relay.process.takeover import Ownership
from tests import reach


class Admin:
    """Says that every topic is there but `absent` ones, and remembers what was asked."""

    def __init__(self, metadata: KafkaError | None = None, absent: Collection[str] = ()) -> None:
        self.asked: list[str] = []
        self._metadata, self._absent = metadata, absent
        self.fixed: set[str] = set()
        self.widths: dict[str, int] = {}

    def list_topics(self, topic: str, timeout: float) -> None:
        assert timeout > 0
        self.asked.append(f"metadata of {topic}")
        if self._metadata is not None:
            raise KafkaException(self._metadata)

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        self.asked.append(f"describe {', '.join(topics.topic_names)}")
        return {name: self._described(name) for name in topics.topic_names}

    def _described(self, name: str) -> Future[Any]:
        answer: Future[Any] = Future()
        if name in self._absent:
            answer.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        elif "denied" in name:
            answer.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
        else:
            facts = {
                "topic_id": "id",
                "partitions": [SimpleNamespace(replicas=[1, 2, 3])],
                "authorized_operations": [],
            }
            answer.set_result(SimpleNamespace(**facts))
        return answer

    def create_topics(self, new: Sequence[NewTopic], **_: Any) -> dict[str, Future[Any]]:
        self.asked.append(f"create {', '.join(one.topic for one in new)}")
        self.widths |= {one.topic: one.num_partitions for one in new}
        refused: Future[Any] = Future()
        refused.set_exception(KafkaException(KafkaError(KafkaError.POLICY_VIOLATION)))
        return {one.topic: refused for one in new}

    def create_partitions(self, new: Sequence[NewPartitions], **_: Any) -> dict[str, Future[Any]]:
        """Asked with `validate_only`, about topics that are not there."""
        self.asked.append(f"grow {', '.join(one.topic for one in new)}")
        answers: dict[str, Future[Any]] = {one.topic: Future() for one in new}
        for topic, answer in answers.items():
            denied = KafkaError.TOPIC_AUTHORIZATION_FAILED
            code = denied if topic in self.fixed else KafkaError.UNKNOWN_TOPIC_OR_PART
            answer.set_exception(KafkaException(KafkaError(code)))
        return answers

    def poll(self, _: float) -> None:
        pass


@pytest.fixture
def topics() -> Topics:
    return Topics(reach.nobody())


def test_nothing_is_asked_about_a_topic_that_may_not_be_there(topics: Topics) -> None:
    """Such a question could create it."""
    admin = Admin()
    topics._admin.client = cast("Any", admin)
    topics.source()
    assert admin.asked == ["describe rows"]


@pytest.mark.parametrize("answer", [None, KafkaError(KafkaError._TIMED_OUT)])
def test_who_is_the_controller_is_asked_before_it_is_needed(
    topics: Topics, answer: KafkaError | None
) -> None:
    """The client would wait for the one that it knows, though that broker is gone for good."""
    admin = Admin(answer)
    topics._admin.client = cast("Any", admin)
    topics.ensure_own()
    admin.asked.clear()
    topics.still_there()
    apps = ("shop.dead", "shop.journal", "shop.schemas")
    expected = [one for app in apps for one in ("metadata of shop.journal", f"describe {app}")]
    assert admin.asked == expected


def test_the_controller_of_the_sources_own_cluster_is_asked_for_there() -> None:
    """Its client waited for a broker that is gone, and the other cluster's was asked."""
    given = reach.nobody()
    source = given.source.model_copy(update={"kafka": given.kafka})
    topics = Topics(given.model_copy(update={"source": source}))
    ours, theirs = Admin(), Admin()
    assert topics._of_source is not None
    topics._admin.client, topics._of_source.client = cast("Any", ours), cast("Any", theirs)
    topics.ensure_own()
    ours.asked.clear()
    theirs.asked.clear()
    topics.describe("rows")
    assert (ours.asked, theirs.asked) == ([], ["metadata of rows", "describe rows"])


@pytest.mark.parametrize(("absent", "found"), [([], "id"), (["rows"], "")])
def test_the_sources_id_is_asked_for_once_after_each_poll(
    topics: Topics, absent: list[str], found: str
) -> None:
    """Not for each transaction: across clusters every partition has one of its own."""
    admin = Admin(absent=absent)
    topics._admin.client = cast("Any", admin)
    producers: Any = SimpleNamespace(deadline_seconds=1.0)
    ownership = Ownership(reach.nobody(), topics, cast("Any", None), producers)
    for _ in range(2):
        ownership.polled()
        assert [ownership.source_id() for _ in range(3)] == [found] * 3
    assert admin.asked == ["describe rows"] * 2


class Ends:
    """Of a journal that holds records; once it is asked, the brokers know every topic."""

    def __init__(self, admin: Admin, *_: object) -> None:
        self._admin = admin

    def stable(self, partitions: Collection[int]) -> dict[int, int]:
        self._admin._absent = ()
        return dict.fromkeys(partitions, 3)


@pytest.fixture
def without_registry(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> Admin:
    """Beside a journal that holds records."""
    admin = Admin(absent=["shop.schemas"])
    topics._admin.client = cast("Any", admin)
    monkeypatch.setattr("relay.kafka.topics.TopicEnds", Ends)
    return admin


def test_a_registry_that_is_only_not_known_yet_is_waited_for(
    topics: Topics, without_registry: Admin
) -> None:
    """Another relay made it a moment ago: to end with status 6 would be wrong."""
    topics.ensure_own()
    assert not any(one.startswith("create") for one in without_registry.asked)


def test_a_registry_that_is_gone_is_not_made_anew(
    topics: Topics, without_registry: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its numbers would be others than those that producers use."""
    monkeypatch.setattr(Ends, "stable", lambda _, partitions: dict.fromkeys(partitions, 3))
    monkeypatch.setattr("relay.kafka.topics.APPEAR_SECONDS", 0.2)
    with pytest.raises(ContractBroken, match="does not exist, but"):
        topics.ensure_own()
    assert not any(one.startswith("create") for one in without_registry.asked)


def test_many_are_made_in_one_request(topics: Topics) -> None:
    """Those that are there by none of their names; what was refused is left to who needs it."""
    wanted = {"new": ("new", "n-w"), "old": ("old", "o-d"), "n-t": ("not", "n-t"), "x": ("x",)}
    admin = Admin(absent={"new", "n-w", "o-d", "n-t", "x"})
    topics._admin.client = cast("Any", admin)
    topics._partitions = 4
    admin.fixed = {"x"}
    topics.make_block_topics({**wanted, "denied": ("denied",)}, 1)

    described, *others = admin.asked
    assert described == "describe denied, n-t, n-w, new, not, o-d, old, x"
    assert others == ["grow new, x", "create new, x"]
    assert admin.widths == {"new": 1, "x": 4}, "what may not grow later is made wide"
    admin = Admin()
    topics._admin.client = cast("Any", admin)
    topics.make_block_topics(wanted, 1)
    assert len(admin.asked) == 1


def test_a_topic_that_is_looked_for_is_not_made(topics: Topics) -> None:
    """As many partitions as the source, and the right to write, make it ready."""
    admin = Admin(absent={"new"})
    topics._admin.client = cast("Any", admin)
    topics._partitions = 4
    assert topics.look_for({"new", "old", "denied"}) == ({"new"}, {"old"})
    assert topics.width("old") == 1
    topics._partitions = 0
    assert topics.look_for({"wide"}) == (set(), set())
    assert admin.asked == ["describe denied, new, old", "describe wide"]


class Silent(Admin):
    """Describes topics, and answers nothing else: those who control the cluster are away."""

    def create_partitions(self, new: Sequence[NewPartitions], **_: Any) -> dict[str, Future[Any]]:
        self.asked.append(f"grow {', '.join(one.topic for one in new)}")
        return {one.topic: timed_out() for one in new}

    def describe_configs(self, asked: Sequence[ConfigResource], **_: Any) -> Any:
        return {one: timed_out() for one in asked}


def timed_out() -> Future[Any]:
    answer: Future[Any] = Future()
    answer.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
    return answer


@pytest.fixture
def causes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of which silence it was asked whether the brokers' names lead nowhere."""
    found: list[str] = []

    def note(error: Unavailable, _: object) -> Unavailable:
        found.append(error.message)
        return error

    monkeypatch.setattr("relay.kafka.admin.name_unresolved_brokers", note)
    return found


def test_one_silence_about_many_topics_is_one(topics: Topics, causes: list[str]) -> None:
    """Red before: for each topic a client was made, which waits up to 15 s."""
    topics._admin.client = cast("Any", Silent())
    copies = {f"t{number}": 3 for number in range(200)}
    assert topics.least_in_sync(copies) == dict.fromkeys(copies, 2)
    assert len(causes) <= 1


def test_who_hears_nothing_makes_no_topic_wide_for_ever(topics: Topics, causes: list[str]) -> None:
    """Red before: a time-out counted as no right to grow it later, and then another was waited for,
    of the request that creates it."""
    admin = Silent(absent={"new", "n-w", "x"})
    topics._admin.client = cast("Any", admin)
    topics._partitions = 4
    assert topics.make_block_topics({"new": ("new", "n-w"), "x": ("x",)}, 1) == {"new", "n-w", "x"}
    with pytest.raises(Unavailable, match="ask whether new could grow"):
        topics.ensure_block_topic("new", 1)
    assert not admin.widths
    assert len(causes) == 2


STAMPED = "message.timestamp.type"


class Deciding(Admin):
    """Creates topics without the settings in `refused`, which it decides about itself."""

    def __init__(self, absent: Collection[str], refused: Collection[str]) -> None:
        super().__init__(absent=absent)
        self.refused = {*refused}
        self.settings: list[dict[str, str]] = []

    def create_topics(self, new: Sequence[NewTopic], **_: Any) -> dict[str, Future[Any]]:
        answers: dict[str, Future[Any]] = {one.topic: Future() for one in new}
        for one in new:
            settings = cast("Any", one).config
            self.settings.append(settings)
            if self.refused & settings.keys():
                error = KafkaError(KafkaError.POLICY_VIOLATION)
                answers[one.topic].set_exception(KafkaException(error))
            else:
                self._absent = {*self._absent} - {one.topic}
                answers[one.topic].set_result(None)
        return answers


@pytest.mark.parametrize(
    ("configured", "copies", "in_sync"), [(None, 3, "2"), (5, 5, "2"), (3, 3, "2"), (1, 1, None)]
)
def test_a_topic_has_as_many_copies_as_the_source_where_nobody_says_otherwise(
    configured: int | None, copies: int, in_sync: str | None
) -> None:
    topics = Topics(reach.nobody(replication=configured))
    topics._admin.client = cast("Any", Admin())
    topics.source()
    new = cast("Any", topics._new("new", 1))
    assert new.replication_factor == copies
    assert new.config.get("min.insync.replicas") == in_sync


@pytest.mark.parametrize(
    ("refused", "left"),
    [
        (set(), {"cleanup.policy", "max.message.bytes", "min.insync.replicas", STAMPED}),
        ({STAMPED}, {"cleanup.policy", "max.message.bytes", "min.insync.replicas"}),
        ({"max.message.bytes"}, {"cleanup.policy", "min.insync.replicas", STAMPED}),
        ({"max.message.bytes", STAMPED}, {"cleanup.policy", "min.insync.replicas"}),
        ({"min.insync.replicas"}, {"cleanup.policy"}),
    ],
)
def test_a_topic_has_all_settings_that_the_brokers_accept(
    refused: set[str], left: set[str]
) -> None:
    """Another topic then asks for no more than these."""
    topics = Topics(reach.nobody(replication=3))
    admin = Deciding(["new", "x"], refused)
    topics._admin.client = cast("Any", admin)
    topics.source()
    topics.ensure_block_topic("new", 1)

    assert {*admin.settings[-1]} == left
    assert admin.settings[-1].get("min.insync.replicas", "2") == "2"
    asked = len(admin.settings)
    topics.ensure_block_topic("x", 1)
    assert [{*one} for one in admin.settings[asked:]] == [left]


def test_what_no_setting_helps_against_is_refused() -> None:
    """And the next topic asks for all of them again: they were not the reason."""
    topics = Topics(reach.nobody(replication=3))
    admin = Deciding(["new", "x"], ["cleanup.policy"])
    topics._admin.client = cast("Any", admin)
    topics.source()
    for topic in ("new", "x"):
        with pytest.raises(Refused):
            topics.ensure_block_topic(topic, 1)
    halves = len(admin.settings) // 2
    assert admin.settings[:halves] == admin.settings[halves:]


@pytest.mark.parametrize("partitions", [1, 16, 256, 9_000, 20_000])
def test_no_request_is_larger_than_a_controller_takes(partitions: int) -> None:
    """It refuses all topics of a request of more than 10,000 records, and each would be lost."""
    topics = {f"t{number}" for number in range(3_000)}
    requests = list(in_requests(topics, partitions))

    assert {topic for some in requests for topic in some} == topics
    assert sum(map(len, requests)) == len(topics)
    assert all(len(some) == 1 or len(some) * (partitions + 4) <= 10_000 for some in requests)
    assert partitions > 1 or len(requests) == 2
