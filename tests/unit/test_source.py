"""What a member of the group hears that ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError

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
