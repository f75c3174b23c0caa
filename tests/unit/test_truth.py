"""relay.process.truth: what brokers that do not answer, or answer no, are to the relay."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException

from relay.errors import ContractBroken, Refused, RelayError, Unavailable
from relay.kafka.topics import TopicFacts
from relay.process.truth import TruthReader, decode_record
from tests import reach

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

    from relay.kafka.topics import Topics


def test_a_message_that_is_no_journal_record_is_named_with_its_place() -> None:
    """The relay ended as by a bug of its own."""
    message = SimpleNamespace(
        value=lambda: b'{"a":1}',
        topic=lambda: "a.journal",
        partition=lambda: 3,
        offset=lambda: 9,
        timestamp=lambda: (1, 0),
    )
    with pytest.raises(ContractBroken, match=r"^a.journal\[3\] has a message at offset 9 that"):
        decode_record(cast("Message", message))


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
    settings = reach.nobody()
    made = TruthReader(settings, cast("Topics", Described()), 0.2)
    monkeypatch.setattr(made._of_journal, "stable", lambda _: {0: 0})
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
        truth.read([0], cast("Consumer", Answering(code)), {})
    assert error.value.next_step


def test_brokers_that_are_away_are_unavailable(
    truth: TruthReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal's last stable offset is asked for first."""
    monkeypatch.undo()
    with pytest.raises(Unavailable):
        truth.read([0], cast("Consumer", Answering(KafkaError._TIMED_OUT)), {})


class Remembering:
    """An AdminClient whose leaders are those of before an outage, until it is asked for them."""

    def __init__(self) -> None:
        self._current = False

    def list_topics(self, *_: object, **__: object) -> None:
        self._current = True

    def list_offsets(self, asked: dict[Any, object], **_: object) -> dict[Any, Future[Any]]:
        answers: dict[Any, Future[Any]] = {place: Future() for place in asked}
        for answer in answers.values():
            if self._current:
                answer.set_result(SimpleNamespace(offset=7))
            else:
                error = KafkaError(KafkaError.FENCED_LEADER_EPOCH)
                answer.set_exception(KafkaException(error))
        return answers


def test_leaders_are_asked_for_before_their_offsets(
    truth: TruthReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen with all brokers away for a minute: no take-over succeeded any more."""
    monkeypatch.undo()
    monkeypatch.setattr(truth._of_journal, "_admin", Remembering())

    assert truth._of_journal.stable([0, 1]) == {0: 7, 1: 7}


class Shorter:
    """A reader of a journal that was made anew: it ends before the offset that is asked for."""

    def __init__(self, end: int) -> None:
        self._end = end
        self.assigned = 0

    def assign(self, _: object) -> None:
        self.assigned += 1

    def unassign(self) -> None:
        pass

    def poll(self, _: float) -> Any:
        error = KafkaError(KafkaError._AUTO_OFFSET_RESET)
        return SimpleNamespace(error=lambda: error)

    def position(self, places: list[Any]) -> list[Any]:
        return [SimpleNamespace(offset=OFFSET_INVALID) for _ in places]

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        return 0, self._end


def test_a_journal_that_ends_before_the_committed_record_has_none(
    truth: TruthReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader may be behind for a moment; to wait for one made anew would be to wait for ever."""
    reader = Shorter(3)
    monkeypatch.setattr(truth, "_reader", lambda _: reader)

    assert truth._at(0, 9) is None
    assert reader.assigned > 1, "the leader had no second chance"


class Empty(Shorter):
    """A reader of a journal that was made anew and is asked for its first offset: no error."""

    def poll(self, _: float) -> Any:
        return None


@pytest.mark.parametrize(("end", "record"), [(0, None), (1, Unavailable)])
def test_offset_0_of_an_empty_journal_is_not_waited_for(
    truth: TruthReader, monkeypatch: pytest.MonkeyPatch, end: int, record: type[Exception] | None
) -> None:
    """It has no record; where the partition does hold the offset, the leader is away."""
    monkeypatch.setattr(truth, "_reader", lambda _: Empty(end))

    if record is None:
        assert truth._at(0, 0) is None
    else:
        with pytest.raises(record):
            truth._at(0, 0)
