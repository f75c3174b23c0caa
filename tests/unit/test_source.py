"""What a member of the group hears that ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from relay.core.records import UNKNOWN_EPOCH, CommittedOffset, Found
from relay.errors import Fenced, Refused
from relay.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable


class Heard:
    """A message that carries an error."""

    def __init__(self, code: int) -> None:
        self._code = code

    def error(self) -> KafkaError:
        return KafkaError(self._code)

    def partition(self) -> int:
        return 0


def source() -> Any:
    made = Source.__new__(Source)
    made._topic, made._group, made._fatal = "rows", "shop.relay", None
    return made


def test_a_fatal_error_comes_as_a_message_and_ends_the_member() -> None:
    """librdkafka gives it the code _FATAL, and not the flag: seen with a fenced static member."""
    heard = Heard(KafkaError._FATAL)
    assert not heard.error().fatal()

    with pytest.raises(Fenced):
        source()._look_at(heard)


def test_what_passes_by_itself_does_not() -> None:
    source()._look_at(Heard(KafkaError._TRANSPORT))


def test_a_refusal_is_one() -> None:
    with pytest.raises(Refused):
        source()._look_at(Heard(KafkaError.TOPIC_AUTHORIZATION_FAILED))


class Revoking:
    """A client that takes the partitions away, and says in the same call what ended it."""

    def __init__(self, source: Source, code: int) -> None:
        self._source, self._code = source, code

    def consume(self, *_: object) -> list[Heard]:
        self._source.rebalanced = True
        return [Heard(self._code)]


@pytest.fixture
def revoked(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Any]:
    monkeypatch.setattr("relay.source.Message", Heard)

    def make(code: int) -> Any:
        made = source()
        made._raised, made._mean_bytes = None, 100.0
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


def found(partition: int, floor: int, epoch: int) -> Found:
    committed = CommittedOffset(floor, n=1, journal_offset=0)
    return Found(partition, committed, None, 0, "id", 0, 9, 0, leader_epoch=epoch)


def positioned(epochs: dict[int, int]) -> Any:
    made = source()
    made._epochs, made.consumer = {}, Positioned(epochs)
    return made


def test_a_floor_is_committed_with_the_last_polled_messages_leader_epoch() -> None:
    assert positioned({0: 3, 1: 4}).leader_epochs({0: 5, 1: 6}) == {0: 3, 1: 4}


def test_an_epoch_read_with_a_floor_goes_with_that_floor_only() -> None:
    """With a later one it would say that the log was cut, where only its leader changed."""
    made = positioned({0: UNKNOWN_EPOCH})
    made.remember([found(0, floor=5, epoch=2)])
    made.seek(0, 5)
    made.seek(0, 6)
    assert made.consumer.sought == [(0, 5, 2), (0, 6, None)]
    assert made.leader_epochs({0: 5}) == {0: 2}
    assert made.leader_epochs({0: 6}) == {0: UNKNOWN_EPOCH}


def test_an_epoch_of_before_is_forgotten_when_the_truth_is_read_again() -> None:
    made = positioned({0: UNKNOWN_EPOCH, 1: UNKNOWN_EPOCH})
    made.remember([found(0, floor=5, epoch=2), found(1, floor=5, epoch=2)])
    made.remember([found(0, floor=6, epoch=UNKNOWN_EPOCH)])
    assert made.leader_epochs({0: 5, 1: 5}) == {0: UNKNOWN_EPOCH, 1: 2}
