"""relay.truth: what brokers that do not answer, or answer no, are to the relay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from relay.errors import Refused, RelayError, Unavailable
from relay.settings import Settings
from relay.topics import TopicFacts
from relay.truth import TruthReader

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from relay.topics import Topics


class Described:
    """A source topic that is there."""

    def source(self) -> TopicFacts:
        return TopicFacts("id", 1)


class Answering:
    """A group member whose question about its offsets is answered with an error."""

    def __init__(self, code: int) -> None:
        self._code = code

    def committed(self, *_: object, **__: object) -> Any:
        raise KafkaException(KafkaError(self._code))


@pytest.fixture
def truth(monkeypatch: pytest.MonkeyPatch) -> TruthReader:
    settings = Settings.model_validate(
        {
            "app": "shop",
            "kafka": {"bootstrap": "127.0.0.1:1"},
            "source": {"topic": "rows"},
            "clickhouse": {"url": "http://127.0.0.1:1"},
            "loader": {"checkpoint": "checkpoint"},
        }
    )
    made = TruthReader(settings, cast("Topics", Described()), 0.2)
    monkeypatch.setattr(made, "_stable_ends", lambda _: {0: 0})
    return made


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._TIMED_OUT, Unavailable),
        (KafkaError._TRANSPORT, Unavailable),
        (KafkaError.COORDINATOR_NOT_AVAILABLE, Unavailable),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, Refused),
    ],
)
def test_an_error_inside_an_assignment_is_the_products(
    truth: TruthReader, code: int, kind: type[RelayError]
) -> None:
    """As it comes it is nothing that the relay foresees: it would end with the status of a bug."""
    with pytest.raises(kind, match=r"shop\.relay") as error:
        truth.read([0], cast("Consumer", Answering(code)))
    assert error.value.next_step


def test_brokers_that_are_away_are_unavailable(
    truth: TruthReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal's last stable offset is asked for first."""
    monkeypatch.undo()
    with pytest.raises(Unavailable):
        truth.read([0], cast("Consumer", Answering(KafkaError._TIMED_OUT)))
