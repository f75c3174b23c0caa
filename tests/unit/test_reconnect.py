"""When a client is given its bootstrap servers again, and when it is left alone."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from relay.kafka import librdkafka
from relay.kafka.reconnect import PAUSE_SECONDS, Bootstrap

DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN)


class Client:
    """Answers with as many brokers as it is told; None: no answer."""

    def __init__(self) -> None:
        self.brokers: int | None = None
        self.asked = 0

    def list_topics(self, timeout: float) -> Any:
        assert timeout > 0
        self.asked += 1
        if self.brokers is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return type("Metadata", (), {"brokers": dict.fromkeys(range(self.brokers))})


class Rig:
    """A Bootstrap with a clock set by hand; `offered` are the servers that its client was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.offered, self.said = 100.0, [], []  # type: float, list[str], list[Any]
        monkeypatch.setattr(
            librdkafka, "add_brokers", lambda _, servers: self.offered.append(servers)
        )
        config = {"bootstrap.servers": "a:1,b:2", "error_cb": self.said.append}
        self.bootstrap = Bootstrap(config, lambda: self.now)
        self.client: Any = Client()

    def look(self, seconds: float = 0.0) -> int:
        """How often they were offered by now."""
        self.now += seconds
        self.bootstrap.look(self.client)
        return len(self.offered)


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


def test_nothing_is_asked_while_nothing_is_wrong(rig: Rig) -> None:
    rig.bootstrap.config["error_cb"](KafkaError(KafkaError._TRANSPORT))
    assert rig.look(1000) == 0
    assert rig.client.asked == 0
    assert [error.code() for error in rig.said] == [KafkaError._TRANSPORT]


def test_offered_again_and_again_until_a_broker_is_named(rig: Rig) -> None:
    """One offer may be forgotten as the brokers were; an answer without brokers is none."""
    rig.bootstrap.config["error_cb"](DOWN)
    assert [rig.look(), rig.look(), rig.look(PAUSE_SECONDS)] == [1, 1, 2]
    rig.client.brokers = 0
    assert rig.look(PAUSE_SECONDS) == 2
    rig.client.brokers = None
    assert rig.look() == 3
    rig.client.brokers = 3
    assert rig.look(PAUSE_SECONDS) == 3
    asked = rig.client.asked
    assert rig.look(1000) == 3
    assert rig.client.asked == asked
    assert set(rig.offered) == {"a:1,b:2"}


def test_a_call_without_answer_is_a_reason(rig: Rig) -> None:
    """For a client that nobody polls, so that it hears of nothing."""
    with pytest.raises(KafkaException), rig.bootstrap.offering(rig.client):
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    assert len(rig.offered) == 1
    with rig.bootstrap.offering(rig.client):
        rig.now += 1000
    assert len(rig.offered) == 1
    rig.bootstrap.doubt()
    assert rig.look() == 2


def test_a_client_that_is_not_known_is_left_alone(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(librdkafka, "unsupported", lambda: "another version")
    rig.bootstrap.doubt()
    assert rig.look() == 0
