"""Who asks about groups again and again outlives the end of the process that asks."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from relay import log
from relay.config.settings import Kafka
from relay.kafka.errors import PASSING
from relay.kafka.group_queries import Groups, _describe, _Refusal
from tests.broker.pipeline import wait_until


def lasting(bootstrap: str) -> Groups:
    return Groups(Kafka(bootstrap=bootstrap), 30.0, lasting=True)


def test_a_child_that_aborts_is_started_again(bootstrap: str, app: str) -> None:
    """As librdkafka aborts it: between two questions, and under one."""
    groups = lasting(bootstrap)

    def described() -> str:
        try:
            return groups.describe(app).state
        except KafkaException as error:  # the cluster's first group makes its coordinator
            if error.args[0].code() not in PASSING:
                raise
            return ""

    wait_until(lambda: described() == "dead", "an answer")
    child = groups._child
    assert child is not None
    assert child.pid is not None
    os.kill(child.pid, signal.SIGABRT)
    wait_until(lambda: not child.is_alive(), "the end of the child")
    assert groups.describe(app).state == "dead"

    second = groups._child
    assert second is not None
    assert second.pid is not None
    os.kill(second.pid, signal.SIGSTOP)
    threading.Timer(0.5, os.kill, (second.pid, signal.SIGKILL)).start()
    with pytest.raises(KafkaException, match="ended with status -9") as told:
        groups.describe(app)
    assert told.value.args[0].code() == KafkaError._TRANSPORT
    assert groups.committed(app, f"{app}.source", [0, 1])[1].offset < 0
    groups.close()
    assert groups._child is None


@pytest.mark.parametrize("lasts", [False, True])
def test_what_got_no_answer_is_asked_by_another_client(*, lasts: bool) -> None:
    """One that a request was left on may get no answer ever more (librdkafka 4605)."""
    groups = Groups(Kafka(bootstrap="127.0.0.1:1"), 30.0, lasting=lasts)
    with pytest.raises(KafkaException) as told:
        groups._ask(_describe, "g")
    assert told.value.args[0].code() < 0
    assert groups._child is groups._own is None


@pytest.mark.parametrize("lasts", [False, True])
def test_of_no_partitions_nobody_is_asked(*, lasts: bool) -> None:
    """Of a verifier whose brokers went before it knew any: its child ended of the client's
    ValueError, with a stack trace at each try (seen in a campaign of outages)."""
    groups = Groups(Kafka(bootstrap="127.0.0.1:1"), 30.0, lasting=lasts)

    assert groups.committed("g", "t", []) == []
    assert groups._child is groups._own is None


@pytest.mark.parametrize("lasts", [False, True])
def test_without_an_answer_the_brokers_are_named(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, lasts: bool
) -> None:
    """And where this process has no log, as beside a screen, neither has its child."""
    monkeypatch.setattr(log, "in_use", lambda: None)
    groups = Groups(Kafka(bootstrap="127.0.0.1:1"), 30.0, lasting=lasts)

    with pytest.raises(KafkaException) as told:
        groups.describe("g")

    assert "127.0.0.1:1: Connection refused" in told.value.args[0].str()
    # Of this address: clients of other tests, whose brokers have ended, may write as well.
    assert "127.0.0.1:1/" not in capfd.readouterr().err


class Refusing:
    """A client whose coordinator answers with this code."""

    def __init__(self, code: int) -> None:
        self._code = code

    def ask(self, *_: object) -> _Refusal:
        return _Refusal(self._code, "")


@pytest.mark.parametrize(
    ("code", "kept"),
    [(KafkaError.NOT_COORDINATOR, False), (KafkaError.GROUP_AUTHORIZATION_FAILED, True)],
)
def test_a_client_that_asks_who_coordinates_no_more_is_put_away(code: int, *, kept: bool) -> None:
    """It asked the same broker for minutes after the coordinator had moved (seen in a campaign)."""
    groups = Groups(Kafka(bootstrap="127.0.0.1:1"), 30.0, lasting=False)
    client: Any = Refusing(code)
    groups._own = client

    with pytest.raises(KafkaException):
        groups.describe("g")

    assert (groups._own is client) is kept
