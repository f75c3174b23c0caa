"""Offsets of the group, as a broker tells them while a transaction is open."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError

from relay.errors import ContractBroken, Unavailable
from relay.kafka.group_queries import GroupOffset
from relay.operate.verify.read import journal, topic
from relay.operate.verify.read.journal import Reader
from relay.operate.verify.relay_letters import RelayLetterJudge
from relay.records_pb2 import Commit
from tests import reach


class Asked:
    """Gives one answer after the other, the last one for ever."""

    def __init__(self, *answers: Sequence[GroupOffset]) -> None:
        self._answers = list(answers)

    def committed(self, *_: object) -> Sequence[GroupOffset]:
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


def place(partition: int, offset: int, error: int = 0) -> GroupOffset:
    return GroupOffset(partition, offset, "m", error, "said" if error else "")


def reader(*answers: Sequence[GroupOffset]) -> Any:
    made = Reader.__new__(Reader)
    source = SimpleNamespace(topic="rows")
    made._settings = SimpleNamespace(app="shop", source=source)  # type: ignore[assignment]
    made._at = {0: 0, 1: 0}
    made._groups = Asked(*answers)  # type: ignore[assignment]
    return made


UNSTABLE = place(0, OFFSET_INVALID, KafkaError.UNSTABLE_OFFSET_COMMIT)


def test_an_offset_that_is_being_committed_is_waited_for() -> None:
    other = place(1, 4)

    assert reader([UNSTABLE, other], [place(0, 7), other]).committed() == {0: (7, "m"), 1: (4, "m")}


def test_one_that_stays_open_is_left_out_and_is_not_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """None would say that the group has no offset: a false alarm."""
    monkeypatch.setattr(journal, "UNSTABLE_SECONDS", 0.05)

    assert reader([UNSTABLE, place(1, OFFSET_INVALID)]).committed() == {1: None}


def test_any_other_error_is_one() -> None:
    with pytest.raises(Unavailable):
        reader([place(0, OFFSET_INVALID, KafkaError.NOT_COORDINATOR), place(1, 4)]).committed()


def message(offset: int, value: bytes) -> Any:
    return SimpleNamespace(
        error=lambda: None, partition=lambda: 1, offset=lambda: offset, value=lambda: value
    )


NO_RECORDS = [b'{"a":1}', b"\x0a\xff", Commit(app="shop").SerializeToString()[:-1]]


@pytest.mark.parametrize("value", NO_RECORDS)
def test_a_message_that_is_no_record_is_told_or_ends_the_reading(value: bytes) -> None:
    """Who has nobody to tell does not pass over it."""
    made = reader()
    made._journal = "shop.journal"
    record = Commit(n=3)
    some = [message(7, value), message(8, record.SerializeToString())]
    told: list[tuple[int, int]] = []
    assert list(made._read(some, lambda *place: told.append(place))) == [(1, 8, record)]
    assert told == [(1, 7)]
    with pytest.raises(ContractBroken, match=r"^shop.journal\[1\] has a message at offset 7 that"):
        list(made._read(some, None))


@pytest.mark.parametrize(
    ("raw", "rows"),
    [(b"12", 12), (b"0", 0), (None, 0), (b"", 0), (b"many", 0), (b"-3", 0), (b"9" * 5_000, 0)],
)
def test_a_number_of_rows_that_is_none(
    monkeypatch: pytest.MonkeyPatch, raw: bytes | None, rows: int
) -> None:
    """Another program writes what it likes into a block topic."""
    monkeypatch.setattr(topic, "header", lambda *_: raw)
    assert topic.rows_of(message(0, b"")) == rows


@pytest.mark.parametrize(
    ("raw", "offset"),
    [
        (b"12", 12),
        (b"9" * 18, int("9" * 18)),
        (b"9" * 20, -1),
        (b"9" * 5_000, -1),
        (b"-3", -1),
        (None, -1),
    ],
)
def test_a_source_offset_that_is_none(
    monkeypatch: pytest.MonkeyPatch, raw: bytes | None, offset: int
) -> None:
    """With 20 digits it ended `relay verify --deep` as a bug, and nothing more was judged."""
    monkeypatch.setattr(topic, "header", lambda *_: raw)
    found = topic.source_offset_of(message(0, b""))
    assert found == offset
    RelayLetterJudge([], 0).letter("d.a", found)


def test_brokers_that_are_away_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With address and cause: `Failed to get metadata` says neither."""
    monkeypatch.setattr(journal, "SECONDS", 2.5)
    monkeypatch.setattr(journal, "LOOK_SECONDS", 0.5)
    settings = reach.nobody()
    found = Reader(settings)
    try:
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1: Connection refused"):
            found.grow()
    finally:
        found.close()
