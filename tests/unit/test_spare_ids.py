"""A transaction that cannot be ended, for want of a partition's leader, keeps no relay waiting."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError

from relay.core.events import Failure
from relay.errors import Refused, Unavailable
from relay.kafka.errors import TransactionFailed
from relay.kafka.record_limits import RecordLimits
from relay.operate.metrics.observer import NOTHING
from relay.process import producers
from relay.process.producers import SPARE_IDS, MemberProducer
from tests.mock.rig import MEMBER, relay_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

UNENDED = TransactionFailed(Failure.UNKNOWN, "no end", KafkaError.CONCURRENT_TRANSACTIONS)
OWN = f"app.relay.{MEMBER}"
IDS = [OWN, *(f"{OWN}#{number}" for number in range(1, 1 + SPARE_IDS))]


class Coordinator:
    """In the place of the brokers.

    Attributes:
        answers: by transactional id, what its producer is answered with instead of success.
        asked: ids, in order.
    """

    def __init__(self) -> None:
        self.answers: dict[str, TransactionFailed] = {}
        self.asked: list[str] = []

    def producer(self, config: Mapping[str, Any], *_: object) -> Coordinated:
        return Coordinated(self, config["transactional.id"])


class Coordinated:
    """A producer that only starts."""

    def __init__(self, coordinator: Coordinator, identity: str) -> None:
        self._coordinator, self.identity = coordinator, identity

    def replace(self, *, waits: bool) -> None:
        assert not waits
        self._coordinator.asked.append(self.identity)
        if self.identity in self._coordinator.answers:
            raise self._coordinator.answers[self.identity]

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    made = Coordinator()
    monkeypatch.setattr(producers, "TransactionalProducer", made.producer)
    return made


@pytest.fixture
def member(coordinator: Coordinator) -> MemberProducer:  # noqa: ARG001 - its producers are the coordinator's
    topics: Any = SimpleNamespace(least_in_sync=dict, limits=RecordLimits())
    return MemberProducer(relay_settings("app", "127.0.0.1:9", 30.0, {}), NOTHING, topics)


def test_a_relay_begins_under_its_own_id(coordinator: Coordinator, member: MemberProducer) -> None:
    member.start()
    member.start()
    assert coordinator.asked == IDS[:1] * 2


def test_it_goes_on_under_a_spare_one(coordinator: Coordinator, member: MemberProducer) -> None:
    """Red before: it waited, and with it all tables, for a broker that one table needs."""
    coordinator.answers = dict.fromkeys(IDS[:2], UNENDED)
    member.start()
    assert coordinator.asked == IDS[:3]
    assert member.of(None).identity == IDS[2]  # type: ignore[attr-defined]

    coordinator.answers = {}
    member.start()
    assert coordinator.asked[3:] == [IDS[2]], "and stays with it: the first may not be free yet"


def test_where_none_is_free_it_waits(coordinator: Coordinator, member: MemberProducer) -> None:
    """Then begins with the next, in turn: ids do not grow in number."""
    coordinator.answers = dict.fromkeys(IDS, UNENDED)
    with pytest.raises(Unavailable, match="no end"):
        member.start()
    with pytest.raises(Unavailable):
        member.start()
    assert coordinator.asked[: len(IDS)] == IDS
    assert set(coordinator.asked) == set(IDS)


def test_another_answer_is_no_reason(coordinator: Coordinator, member: MemberProducer) -> None:
    code = KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    coordinator.answers = {IDS[0]: TransactionFailed(Failure.REFUSED, "no right", code)}
    with pytest.raises(Refused):
        member.start()
    assert coordinator.asked == IDS[:1]
