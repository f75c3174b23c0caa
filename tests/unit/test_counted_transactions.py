"""Which error a transaction of RowProducer ends with where its coordinator refuses it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from relay.config.settings import Kafka
from relay.errors import Fenced, Refused, RelayError, Unavailable
from relay.kafka.counted_producer import Delivery

FENCES = [KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH]
LIMIT = "transaction.max.timeout.ms"


def fatal(code: int) -> KafkaException:
    return KafkaException(KafkaError(code, "as the broker says it", fatal=True))


class Coordinator:
    """librdkafka's producer, as far as it is asked; `answer` is what calls fail with."""

    def __init__(self) -> None:
        self.answer: int | None = None
        self.made = 0
        self._raised = False
        self._waiting: list[Callable[[KafkaError | None, Message], None]] = []

    def __call__(self, _: Any) -> Coordinator:
        self.made += 1
        return self

    def _answers(self, *_: float) -> None:
        if self.answer is not None:
            raise fatal(self.answer)

    init_transactions = commit_transaction = abort_transaction = _answers

    def begin_transaction(self) -> None: ...

    def produce(self, *_: Any, on_delivery: Any, **__: Any) -> None:
        self._waiting.append(on_delivery)

    def flush(self, _: float) -> int:
        if self.answer in FENCES and not self._raised:
            self._raised = True
            raise SystemError("returned a result with an exception set") from fatal(self.answer)
        error = None if self.answer is None else KafkaError(self.answer)
        for report in self._waiting:
            report(error, Message(topic="t", partition=0, offset=0))
        self._waiting = []
        return 0

    def poll(self, _: float) -> int:
        return 0


class Rig:
    """A producer whose transactions may be open for 120 s; `now` is set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float = 120.0) -> None:
        self.now = 1000.0
        self.client = Coordinator()
        monkeypatch.setattr("relay.kafka.counted_producer.Producer", self.client)
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr("relay.kafka.counted_producer.time", clock)
        self.delivery = Delivery(Kafka(bootstrap="nowhere:1"), "t", "id", seconds)

    def row(self) -> None:
        self.delivery.send("d.t", b"x", 1)


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


@pytest.mark.parametrize("code", FENCES)
@pytest.mark.parametrize(("seconds", "kind"), [(119, Fenced), (121, Unavailable)])
def test_a_fence_after_the_timeout_is_the_coordinators(
    rig: Rig, code: int, seconds: int, kind: type[RelayError]
) -> None:
    """It was `Fenced`, "give each running producer a transactional id of its own"."""
    rig.delivery.begin()
    rig.row()
    rig.delivery.flush()
    rig.now += seconds
    rig.client.answer = code
    with pytest.raises(kind) as ended:
        rig.delivery.commit()
    if kind is Unavailable:
        assert "open for 121 s of the 120 s" in ended.value.message
        assert ended.value.next_step.startswith("commit more often, or raise delivery_timeout")
        assert "find out which rows the topic holds" in ended.value.next_step
    else:
        assert "transactional id of its own" in ended.value.next_step


@pytest.mark.parametrize(("seconds", "kind"), [(119, Fenced), (121, Unavailable)])
def test_the_moment_of_the_fence_counts(rig: Rig, seconds: int, kind: type[RelayError]) -> None:
    """The program may ask for the outcome later."""
    rig.delivery.begin()
    rig.row()
    rig.now += seconds
    rig.client.answer = KafkaError._FENCED
    for _ in range(2):
        with pytest.raises(kind):
            rig.delivery.flush()
        rig.now += 600


def test_the_coordinator_counts_from_the_first_row_of_this_transaction(rig: Rig) -> None:
    """Not from begin, nor from what was committed before."""
    rig.delivery.begin()
    rig.now += 600
    rig.row()
    rig.delivery.flush()
    rig.delivery.commit()
    rig.now += 600
    rig.delivery.begin()
    rig.now += 600
    rig.row()
    rig.delivery.flush()
    rig.client.answer = KafkaError._FENCED
    with pytest.raises(Fenced):
        rig.delivery.commit()


def test_who_was_fenced_makes_no_new_client(rig: Rig) -> None:
    """Which would fence a successor: one that slept for long cannot know that there is none."""
    rig.delivery.begin()
    rig.row()
    rig.delivery.flush()
    rig.now += 121
    rig.client.answer = KafkaError._FENCED
    for end in (rig.delivery.commit, rig.delivery.abort):
        with pytest.raises(Unavailable, match="open for 121 s"):
            end()
    assert rig.client.made == 1


def test_who_may_be_open_for_the_longest_is_not_told_to_raise_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(monkeypatch, 3600.0)
    rig.delivery.begin()
    rig.row()
    rig.delivery.flush()
    rig.now += 901
    rig.client.answer = KafkaError._FENCED
    with pytest.raises(Unavailable, match="open for 901 s of the 900 s") as ended:
        rig.delivery.commit()
    assert "delivery_timeout_seconds" not in ended.value.next_step


@pytest.mark.parametrize(
    ("limits", "said", "step"),
    [
        ({LIMIT: [90_000, 60_000]}, f"{LIMIT} = 60000", "set delivery_timeout_seconds = 60,"),
        ({}, "needs DescribeConfigs", "lower delivery_timeout_seconds,"),
    ],
)
def test_a_timeout_that_the_brokers_do_not_allow_is_named_by_its_own_setting(
    rig: Rig,
    limits: dict[str, list[int]],
    said: str,
    step: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was relay.transaction_timeout_seconds, which plays no part."""
    monkeypatch.setattr("relay.kafka.errors.read_limits", lambda *_: limits)
    rig.client.answer = KafkaError.INVALID_TRANSACTION_TIMEOUT
    with pytest.raises(Refused) as refused:
        Delivery(Kafka(bootstrap="nowhere:1"), "t", "id", 120.0)
    assert "delivery_timeout_seconds is 120000 ms" in refused.value.message
    assert said in refused.value.message
    assert "relay.transaction_timeout_seconds" not in str(refused.value)
    assert refused.value.next_step.startswith(step)


@pytest.mark.parametrize(
    ("code", "kind"), [(KafkaError._FENCED, Fenced), (KafkaError.MSG_SIZE_TOO_LARGE, None)]
)
def test_a_fence_that_records_meet_is_no_reason_for_a_new_client(
    rig: Rig, code: int, kind: type[RelayError] | None
) -> None:
    """It fenced the successor; other failures are forgiven, and a new client begins afresh."""
    rig.delivery.begin()
    rig.row()
    rig.client.answer = code
    with pytest.raises(RelayError):
        rig.delivery.flush()
    rig.client.answer = None
    with pytest.raises(kind) if kind else contextlib.nullcontext():
        rig.delivery.abort()
    assert rig.client.made == (1 if kind else 2)
