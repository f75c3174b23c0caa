"""What a member of the group hears that ends it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from relay.core.offsets import UNKNOWN_EPOCH, CommittedOffset
from relay.core.records import PartitionTruth
from relay.errors import ContractBroken, ErrorPage, Fenced, Refused
from relay.intake import membership
from relay.intake.bulk import PolledError
from relay.intake.fetch_assignment import Fetching, LeaderEpochs
from relay.intake.membership import MemberFenced
from relay.intake.read_errors import AGAIN_SECONDS, OF_GROUP, Troubles
from relay.intake.source import FULL_BYTES, SourceMember, poll_bytes
from relay.kafka.errors import lost_end

if TYPE_CHECKING:
    from collections.abc import Callable


TRUNCATED = (
    "Partition log truncation detected at offset 200 (leader epoch 0): broker end offset is 100 "
    "(offset leader epoch 0). Reset to INVALID.: Local: Partition log truncation detected "
    "(broker 1)"
)
NO_EPOCH = (
    "No epoch found less or equal to offset 200 (leader epoch 0): broker end offset is -1 (offset "
    "leader epoch -1). Reset using configured policy.: Local: Partition log truncation detected "
    "(broker 1)"
)
OUT_OF_RANGE = (
    "fetch failed due to requested offset not available on the broker: Broker: Offset out of "
    "range (broker 1)"
)
"""As librdkafka 2.16 says it."""


class Heard:
    """A message that carries an error; without a topic it is the group's."""

    def __init__(
        self, code: int, offset: int = 7, text: str = "", topic: str | None = "rows"
    ) -> None:
        self._code, self._offset, self._text, self._topic = code, offset, text, topic

    def topic(self) -> str | None:
        return self._topic

    def error(self) -> KafkaError:
        return KafkaError(self._code, self._text) if self._text else KafkaError(self._code)

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset


def polled(heard: Heard) -> PolledError:
    return PolledError(heard.error(), heard.topic(), heard.partition(), heard.offset())


def source() -> Any:
    made = SourceMember.__new__(SourceMember)
    made._topic, made._group, made._fatal, made._over = "rows", "shop.relay", None, None
    made.filled, made._bulk = 0.0, SimpleNamespace(begin=lambda **_: None)
    made._poll_bytes = 2 * FULL_BYTES
    made._bootstrap = SimpleNamespace(look=lambda _: None)
    made._troubles, made.heard = Troubles("rows", "shop.relay", "kafka:9092", 100), []
    made._on_trouble = lambda *what: made.heard.append(what)
    return made


def test_a_fatal_error_comes_as_a_message_and_ends_the_member() -> None:
    """librdkafka gives it the code _FATAL, and not the flag: seen with a fenced static member."""
    heard = Heard(KafkaError._FATAL)
    assert not heard.error().fatal()

    with pytest.raises(Fenced):
        source()._look_at(polled(heard))


def test_what_may_pass_by_itself_does_not_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """The client tries again for ever, so the same error comes many times a second."""
    made = source()
    for offset in (7, 7, 7, 8):
        made._look_at(polled(Heard(KafkaError._BAD_COMPRESSION, offset)))
    assert made.heard == [(0, "_BAD_COMPRESSION")] * 4
    told = [vars(record) for record in caplog.records]
    assert [(line["topic"], line["partition"], line["offset"]) for line in told] == [
        ("rows", 0, 7),
        ("rows", 0, 8),
    ]
    assert "_BAD_COMPRESSION" in told[0]["why"]
    assert '"receive.message.max.bytes" (100)' in told[0]["next"]


def test_what_does_not_pass_is_told_again_from_time_to_time() -> None:
    troubles, error = (
        Troubles("rows", "shop.relay", "kafka:9092", 100),
        KafkaError(KafkaError._BAD_COMPRESSION),
    )
    assert troubles.tell(0, 7, error, 1_000.0)
    assert troubles.tell(0, 7, error, 1_000.0 + AGAIN_SECONDS - 1) is None
    assert troubles.tell(1, 7, error, 1_000.0 + AGAIN_SECONDS - 1), "another partition"
    assert troubles.tell(0, 7, error, 1_000.0 + AGAIN_SECONDS)
    assert troubles.tell(0, 7, error, 1_001.0 + AGAIN_SECONDS) is None


@pytest.mark.parametrize(
    ("code", "step"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, "raise that setting in [kafka.client]"),
        (KafkaError._BAD_MSG, "damaged"),
        (KafkaError._TRANSPORT, "reads it again"),
    ],
)
def test_each_trouble_has_a_next_step(code: int, step: str) -> None:
    told = Troubles("rows", "shop.relay", "kafka:9092", 100).tell(0, 7, KafkaError(code), 0.0)
    assert told is not None
    assert step in str(told["next"])


@pytest.mark.parametrize("name", ["INCONSISTENT_GROUP_PROTOCOL", "GROUP_MAX_SIZE_REACHED"])
def test_what_the_group_says_is_no_partitions(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Others are in it: a person is told how to see them, once for a while."""
    made, code = source(), getattr(KafkaError, name)
    for _ in range(3):
        made._look_at(polled(Heard(code, 0, topic=None)))

    assert made.heard == [(OF_GROUP, name)] * 3
    (line,) = (vars(record) for record in caplog.records)
    assert (line["group"], "partition" in line) == ("shop.relay", False)
    command = "kafka-consumer-groups --bootstrap-server kafka:9092 --group shop.relay"
    assert f"`{command} --describe --members`" in line["next"]


def test_what_the_group_says_beside_what_a_partition_says(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = source()
    timed_out, corrupt = KafkaError._MAX_POLL_EXCEEDED, KafkaError._BAD_MSG
    made._look_at(polled(Heard(timed_out, 0, topic=None)))
    made._look_at(polled(Heard(corrupt)))

    assert made.heard == [(OF_GROUP, "_MAX_POLL_EXCEEDED"), (0, "_BAD_MSG")]
    of_group, of_partition = (vars(record) for record in caplog.records)
    assert of_group["next"] == "nothing: the relay tries again"
    assert (of_partition["partition"], of_partition["offset"]) == (0, 7)


@pytest.mark.parametrize(
    ("limits", "said", "step"),
    [
        ({"min": [6000, 3000], "max": [9000, 8000]}, "= 6000, group.max", "seconds = 6,"),
        ({"min": [1000], "max": [2000, 4000]}, "timeout.ms = 2000", "seconds = 2,"),
        ({}, "needs DescribeConfigs", "change relay.session_timeout_seconds"),
    ],
)
def test_a_session_that_the_brokers_do_not_allow_ends_the_relay(
    monkeypatch: pytest.MonkeyPatch, limits: dict[str, list[int]], said: str, step: str
) -> None:
    """It would be refused for ever: the setting and the limits of all brokers are named."""
    made = source()
    relay = SimpleNamespace(session_timeout_seconds=5.0)
    made._settings = SimpleNamespace(relay=relay, source_kafka=None)
    found = {f"group.{which}.session.timeout.ms": values for which, values in limits.items()}
    monkeypatch.setattr(membership, "read_limits", lambda *_: found)

    with pytest.raises(Refused) as raised:
        made._look_at(polled(Heard(KafkaError.INVALID_SESSION_TIMEOUT, 0, topic=None)))

    assert "relay.session_timeout_seconds is 5000 ms" in raised.value.message
    assert said in raised.value.message
    assert step in raised.value.next_step


def test_a_refusal_is_one() -> None:
    with pytest.raises(Refused):
        source()._look_at(polled(Heard(KafkaError.TOPIC_AUTHORIZATION_FAILED)))


def test_a_log_that_lost_its_end_is_told_from_one_whose_offset_was_deleted() -> None:
    reset = KafkaError._AUTO_OFFSET_RESET
    with pytest.raises(ContractBroken, match="lost its end") as lost:
        source()._look_at(polled(Heard(reset, text=TRUNCATED)))
    assert lost.value.page == ErrorPage.ACCEPT
    with pytest.raises(ContractBroken, match="cannot continue reading") as gone:
        source()._look_at(polled(Heard(reset, text=OUT_OF_RANGE)))
    assert gone.value.page == ErrorPage.GAP


@pytest.mark.parametrize(
    ("text", "end"),
    [(TRUNCATED, 100), (NO_EPOCH, -1), (OUT_OF_RANGE, None)],
    ids=["truncated", "no epoch", "out of range"],
)
def test_where_a_log_ends_for_an_epoch_is_read_from_the_error(text: str, end: int | None) -> None:
    assert lost_end(KafkaError(KafkaError._AUTO_OFFSET_RESET, text)) == end
    assert lost_end(KafkaError(KafkaError._TRANSPORT, text)) is None


class Revoking:
    """A client that takes the partitions away, and says in the same call what ended it."""

    def __init__(self, source: SourceMember, code: int) -> None:
        self._source, self._code = source, code

    def consume(self, *_: object) -> list[Heard]:
        self._source.rebalanced = True
        return [Heard(self._code)]

    def memberid(self) -> str:
        return ""


@pytest.fixture
def revoked(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Any]:
    monkeypatch.setattr("relay.intake.source.Message", Heard)

    def make(code: int) -> Any:
        made = source()
        made._raised, made._mean_bytes, made._ids = None, 100.0, set()
        made.consumer = Revoking(made, code)
        return made

    return make


def test_a_fatal_error_that_comes_with_a_revocation_ends_the_member(
    revoked: Callable[[int], Any],
) -> None:
    """It is told once: passed over, the relay polled a dead consumer for ever (seen)."""
    with pytest.raises(Fenced):
        revoked(KafkaError._FATAL).poll(lambda _: None)


def test_other_errors_that_come_with_a_revocation_are_of_before(
    revoked: Callable[[int], Any],
) -> None:
    """Where a partition was lost, what was wrong with it is another member's business."""
    revoked(KafkaError._AUTO_OFFSET_RESET).poll(lambda _: None)


class Ended:
    """A client that was ended meanwhile: of what ended it, it says so much."""

    def __init__(self, *errors: int) -> None:
        self._errors = errors

    def subscribe(self, *_: object, **__: object) -> None:
        raise KafkaException(KafkaError(KafkaError._FATAL, "Failed to set subscription"))

    def consume(self, *_: object) -> list[Heard]:
        return [Heard(code) for code in self._errors]


@pytest.mark.parametrize("errors", [(), (KafkaError.FENCED_INSTANCE_ID,)])
def test_what_ended_a_client_before_it_joins_again_is_raised_by_the_poll(
    revoked: Callable[[int], Any], errors: tuple[int, ...]
) -> None:
    """It was status 70, as if by a bug: the member was fenced between a poll and the next join."""
    made = revoked(0)
    made.consumer = Ended(*errors)
    made.join()
    with pytest.raises(Fenced) as fenced:
        made.poll(lambda _: None)
    assert isinstance(fenced.value, MemberFenced) == bool(errors)


def test_another_error_of_joining_is_none_of_the_poll(revoked: Callable[[int], Any]) -> None:
    made = revoked(0)
    made.consumer = SimpleNamespace(subscribe=refuse)
    with pytest.raises(KafkaException):
        made.join()


def refuse(*_: object, **__: object) -> None:
    raise KafkaException(KafkaError(KafkaError._INVALID_ARG))


class Having:
    """A client that has so many messages."""

    def __init__(self, messages: int) -> None:
        self._left = messages

    def consume(self, wanted: int, *_: object) -> list[Any]:
        got = min(wanted, self._left)
        self._left -= got
        return [SimpleNamespace(error=lambda: None)] * got


def test_how_full_a_poll_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a share of what counts as full at messages of this size; an empty one is not full."""
    monkeypatch.setattr("relay.intake.source.Message", SimpleNamespace(error=lambda _: None))
    monkeypatch.setattr("relay.intake.source.of_messages", lambda messages, _: messages)
    made = source()
    made._raised, made._fatal, made._tables = None, None, None
    shares = []
    small, large = 100.0, FULL_BYTES / 1_000
    for mean_bytes, there in (
        *((small, 25_000), (small, 7_500), (small, 0)),
        *((large, 250), (large, 1_500), (large, 25_000)),
    ):
        made._mean_bytes, made.consumer = mean_bytes, Having(there)
        made.poll(lambda _: None)
        shares.append(made.filled)

    assert shares == [1.0, 0.75, 0.0, 0.25, 1.5, 2.0]
    made.poll(lambda _: None, FULL_BYTES // 4)
    assert made.filled == 0.25, "no more than the bound, though more is there"


class Ending:
    """A client that gives a message, and says that the partition ends."""

    def consume(self, *_: object) -> list[Any]:
        return [SimpleNamespace(error=lambda: None), Heard(KafkaError._PARTITION_EOF, 11)]


def test_the_end_of_a_partition_is_no_message_and_no_trouble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("relay.intake.source.Message", SimpleNamespace(error=lambda m: m.error()))
    monkeypatch.setattr("relay.intake.source.of_messages", lambda messages, _: len(messages))
    made, taken = source(), []
    made._raised, made._tables, made._mean_bytes = None, None, FULL_BYTES / 40
    made.consumer = Ending()

    made.poll(taken.append)

    assert (made.read_to, made.heard, taken, made.filled) == ({0: 11}, [], [1], 1 / 40)


def test_how_much_a_poll_may_give() -> None:
    """A part of the memory; where that is small, what counts as full."""
    assert poll_bytes(1_024_000_000) == 64_000_000
    assert poll_bytes(64_000_000) == FULL_BYTES


class Positioned:
    """A client that says where it stands, under which leader epoch, and where it is told to go."""

    def __init__(self, epochs: dict[int, int]) -> None:
        self._epochs = epochs
        self.sought: list[tuple[int, int, int | None]] = []

    def position(self, places: list[TopicPartition]) -> list[TopicPartition]:
        return [
            TopicPartition(at.topic, at.partition, 7, leader_epoch=self._epochs[at.partition])
            for at in places
        ]

    def seek(self, place: TopicPartition) -> None:
        self.sought.append((place.partition, place.offset, place.leader_epoch))


def found(partition: int, floor: int, epoch: int) -> PartitionTruth:
    committed = CommittedOffset(floor, n=1, journal_offset=0)
    return PartitionTruth(partition, committed, None, 0, "id", 0, 9, 0, leader_epoch=epoch)


def positioned(epochs: dict[int, int]) -> Any:
    made = source()
    made.epochs, made.consumer = LeaderEpochs(), Positioned(epochs)
    made.fetching = Fetching(made.consumer, "source", made.epochs)
    return made


def test_a_floor_is_committed_with_the_last_polled_messages_leader_epoch() -> None:
    assert positioned({0: 3, 1: 4}).leader_epochs({0: 5, 1: 6}) == {0: 3, 1: 4}


def test_an_epoch_that_may_not_reach_the_floor_is_not_committed() -> None:
    """Behind the last record that the client counts may be some of a later leader's."""
    assert positioned({0: 3}).leader_epochs({0: 8}) == {0: UNKNOWN_EPOCH}


def test_an_epoch_read_with_a_floor_goes_with_that_floor_only() -> None:
    """With a later one it would say that the log was cut, where only its leader changed."""
    made = positioned({0: UNKNOWN_EPOCH})
    made.epochs.remember([found(0, floor=5, epoch=2)])
    made.fetching.seek(0, 5)
    made.fetching.seek(0, 6)
    assert made.consumer.sought == [(0, 5, 2), (0, 6, None)]
    assert made.leader_epochs({0: 5}) == {0: 2}
    assert made.leader_epochs({0: 6}) == {0: UNKNOWN_EPOCH}


def test_an_epoch_of_before_is_forgotten_when_the_truth_is_read_again() -> None:
    made = positioned({0: UNKNOWN_EPOCH, 1: UNKNOWN_EPOCH})
    made.epochs.remember([found(0, floor=5, epoch=2), found(1, floor=5, epoch=2)])
    made.epochs.remember([found(0, floor=6, epoch=UNKNOWN_EPOCH)])
    assert made.leader_epochs({0: 5, 1: 5}) == {0: UNKNOWN_EPOCH, 1: 2}


def test_an_assignment_that_follows_another_takes_that_one_away() -> None:
    """The client rejoined while the first was taken over, and revokes nothing then."""
    made, heard, given = positioned({}), [], []
    made._owned, made._bulk, made._raised = frozenset(), SimpleNamespace(own=lambda _: None), None
    made._on_revoked = lambda partitions: heard.append(("revoked", partitions))
    made._on_assigned = lambda partitions: (
        heard.append(("assigned", partitions)) or dict.fromkeys(partitions, 5)
    )
    client: Any = SimpleNamespace(
        assign=lambda places: given.append([at.partition for at in places])
    )

    for partitions in ([0, 1], [1, 2]):
        made._assigned(client, [TopicPartition("source", one) for one in partitions])
    made._revoked(client, [TopicPartition("source", one) for one in (1, 2)])
    made._assigned(client, [TopicPartition("source", 3)])

    first, second, third = frozenset({0, 1}), frozenset({1, 2}), frozenset({3})
    assert heard == [
        ("assigned", first),
        ("revoked", first),
        ("assigned", second),
        ("revoked", second),
        ("assigned", third),
    ]
    assert given == [[0, 1], [1, 2], [3]]
