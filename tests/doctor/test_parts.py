"""Small parts that need no server: librdkafka's log, errors of questions, the command's help."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from relay.cli.doctor import doctor
from relay.config.settings import Kafka
from relay.errors import Unavailable
from relay.operate.doctor.ask.client import Asker, RequestVersions

if TYPE_CHECKING:
    from collections.abc import Callable


def heard(*lines: str) -> dict[str, int]:
    listener = RequestVersions()
    for line in lines:
        listener.log(7, "%s", "APIVERSION", "client", line)
    return listener.apis


def test_of_two_brokers_the_older_counts() -> None:
    """In the words of librdkafka 2.16; other lines are passed over."""
    place = "[thrd:b:9092/bootstrap]: b:9092/bootstrap: "
    assert heard(
        f"{place}Broker API support:",
        f"{place}  ApiKey Produce (0) Versions 0..13",
        f"{place}  ApiKey TxnOffsetCommit (28) Versions 0..5",
        f"{place}  ApiKey TxnOffsetCommit (28) Versions 0..2",
    ) == {"Produce": 13, "TxnOffsetCommit": 2}


@pytest.fixture
def asker() -> Asker:
    """Of brokers that are nowhere; the futures of these tests are answered already."""
    return Asker(Kafka(bootstrap="127.0.0.1:1"))


def answers(*given: Any) -> Callable[[], Future[Any]]:
    """A request whose repetitions get these answers, one after the other."""
    remaining = iter(given)

    def request() -> Future[Any]:
        future: Future[Any] = Future()
        answer = next(remaining)
        if isinstance(answer, int):
            future.set_exception(KafkaException(KafkaError(answer)))
        else:
            future.set_result(answer)
        return future

    return request


def test_what_passes_is_asked_again(asker: Asker) -> None:
    """As for a moment after the start of a broker."""
    loading, moved = KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_CONTROLLER
    assert asker.answer("ask", answers(loading, moved, "here")) == "here"


def test_a_no_is_asked_once(asker: Asker) -> None:
    with pytest.raises(KafkaException):
        asker.answer("ask", answers(KafkaError.CLUSTER_AUTHORIZATION_FAILED))


def test_no_answer_is_no_answer_to_anything(asker: Asker) -> None:
    with pytest.raises(Unavailable, match="ask"):
        asker.answer("ask", answers(KafkaError._TIMED_OUT))


def test_a_question_without_answer_keeps_the_reason(asker: Asker) -> None:
    asker.cannot("that", KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED), "grant")
    (kept,) = asker.unasked
    assert (kept.what, kept.mend) == ("that", "grant")
    assert kept.reason.startswith("CLUSTER_AUTHORIZATION_FAILED (")


def test_the_help_shows_the_command_in_use() -> None:
    assert "Example: relay doctor relay.toml" in (doctor.help or "")
