"""Whether a member was refused for its own past, or another has its place."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from confluent_kafka import KafkaError

from relay.intake import membership
from relay.intake.membership import MemberFenced, concerns_member
from relay.intake.source import SourceMember
from relay.program.waiting import ServerWait

FATAL = "Fatal error: Broker: Static consumer fenced by other consumer with same group.instance.id"


@pytest.mark.parametrize(
    ("holder", "mine", "own"),
    [
        ("a-1", {"a-1"}, True),
        ("a-1", {"a-1", "a-2"}, True),
        (None, {"a-1"}, True),
        (None, set(), True),
        ("a-2", {"a-1"}, False),
        ("a-1", set(), False),
    ],
)
def test_only_an_id_that_it_had_is_its_own_past(
    holder: str | None, mine: set[str], own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A twin has an id that this process never had."""
    monkeypatch.setattr(membership, "holder", lambda _: holder)
    anything: Any = None
    assert membership.nobody_else(anything, mine, ServerWait(threading.Event())) is own


@pytest.mark.parametrize(
    ("error", "member"),
    [
        (KafkaError(KafkaError.FENCED_INSTANCE_ID), True),
        (KafkaError(KafkaError._FATAL, FATAL), True),
        (KafkaError(KafkaError._FATAL, "Fatal error: Local: This instance has been fenced"), False),
        (KafkaError(KafkaError.PRODUCER_FENCED), False),
    ],
)
def test_a_fatal_error_hides_its_code_in_its_text(error: KafkaError, member: bool) -> None:
    """And no other fence is taken for the member's."""
    assert concerns_member(error) is member
    source = SourceMember.__new__(SourceMember)
    source._topic, source._group, source._ids = "t", "g", {"a-1"}
    told = source._as_error(error)
    assert isinstance(told, MemberFenced) is member
    assert told.exit_code == 7
