"""When a client is given its bootstrap servers again, and when it is left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from relay.config import kafka_clients
from relay.config.kafka_clients import FromFile
from relay.config.settings import Kafka
from relay.kafka import librdkafka
from relay.kafka.partition_reader import PartitionReader
from relay.kafka.reconnect import LOOK_SECONDS, PAUSE_SECONDS, Bootstrap, Renewal

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


# ---- a password that changes in its file ---------------------------------------------------


class Renewed:
    """In a client's place: keeps what it was given."""

    def __init__(self) -> None:
        self.given: list[tuple[str, str]] = []

    def set_sasl_credentials(self, user: str, password: str) -> None:
        self.given.append((user, password))


def test_a_password_is_taken_from_its_file_when_it_changes(tmp_path: Path) -> None:
    """Once; not the empty file of a writer that is not done, nor where the file is gone."""
    path, now = tmp_path / "kafka", 0.0
    path.write_text("first\n", encoding="utf-8")
    config = {"sasl.username": "relay", "sasl.password": FromFile.read(path)}
    renewal, client = Renewal(config, lambda: now), Renewed()
    steps: list[tuple[str | None, list[tuple[str, str]]]] = [
        ("first\n", []),
        ("", []),
        (None, []),
        ("second\n", [("relay", "second")]),
        ("second\n", [("relay", "second")]),
    ]
    for text, given in steps:
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text, encoding="utf-8")
        now += LOOK_SECONDS
        renewal.look(client)  # type: ignore[arg-type]
        assert client.given == given
    assert renewal.current() == {"sasl.password": "second"}
    path.write_text("third\n", encoding="utf-8")
    renewal.look(client)  # type: ignore[arg-type]
    assert len(client.given) == 1, "not more often than once a second"


def test_a_password_that_is_no_files_stays() -> None:
    """Negative control: also a client without one."""
    for config in ({"sasl.username": "relay", "sasl.password": "first"}, {}):
        client = Renewed()
        renewal = Renewal(config, lambda: 1e9)
        renewal.look(client)  # type: ignore[arg-type]
        assert client.given == []
        assert renewal.current() == {}


def test_every_kind_of_client_takes_another_password(tmp_path: Path) -> None:
    """The binding's own, made as the product makes them."""
    path = tmp_path / "kafka"
    path.write_text("first", encoding="utf-8")
    client = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "SCRAM-SHA-512"}
    client["sasl.username"] = "relay"
    given = {"bootstrap": "127.0.0.1:1", "client": client, "client_files": {"sasl.password": path}}
    brokers = Kafka.model_validate(given)
    for kind, config in (
        (PartitionReader, kafka_clients.reader(brokers)),
        (Producer, kafka_clients.plain_producer(brokers)),
        (AdminClient, kafka_clients.admin(brokers)),
    ):
        clock = iter([0.0, *[LOOK_SECONDS] * 2])
        renewal, made = Renewal(config, lambda times=clock: next(times)), kind(config)
        path.write_text("second", encoding="utf-8")
        renewal.look(made)
        path.write_text("first", encoding="utf-8")
        assert renewal.current() == {"sasl.password": "second"}
