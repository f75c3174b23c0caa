from __future__ import annotations

from collections.abc import Mapping

import pytest
from confluent_kafka import KafkaError

from relay.config.settings import Kafka
from relay.core.events import Failure
from relay.errors import Refused, Unavailable
from relay.kafka.errors import (
    ENDED,
    FENCED,
    PASSING,
    REFUSED,
    TRANSPORT,
    answered,
    classify,
    describe,
)
from relay.schema.registry import Registry

# code, (fatal, retriable, requires abort) as measured, what to do
CASES = [
    (KafkaError._FENCED, (True, False, False), Failure.FENCED),
    (KafkaError.PRODUCER_FENCED, (True, False, False), Failure.FENCED),
    (KafkaError.FENCED_INSTANCE_ID, (False, False, True), Failure.FENCED),
    (KafkaError.INVALID_TXN_STATE, (True, False, False), Failure.UNKNOWN),
    (KafkaError.ILLEGAL_GENERATION, (False, False, True), Failure.ABORT),
    (KafkaError.UNKNOWN_MEMBER_ID, (False, False, True), Failure.ABORT),
    (KafkaError.GROUP_AUTHORIZATION_FAILED, (False, False, True), Failure.REFUSED),
    (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, (True, False, False), Failure.REFUSED),
    (KafkaError._AUTHENTICATION, (False, False, False), Failure.CREDENTIALS),
    (KafkaError.SASL_AUTHENTICATION_FAILED, (False, False, True), Failure.CREDENTIALS),
    (KafkaError._TIMED_OUT, (False, True, False), None),
    (KafkaError.CONCURRENT_TRANSACTIONS, (False, True, False), None),
    (KafkaError._STATE, (False, False, False), Failure.UNKNOWN),
    # What a record's report or a late answer gives: no flag, or one that is too weak.
    (KafkaError._FENCED, (False, False, True), Failure.FENCED),
    (KafkaError.PRODUCER_FENCED, (False, False, False), Failure.FENCED),
    (KafkaError.MSG_SIZE_TOO_LARGE, (False, False, False), Failure.REFUSED),
    (KafkaError.UNKNOWN_PRODUCER_ID, (False, False, False), Failure.UNKNOWN),
    (KafkaError.UNKNOWN_PRODUCER_ID, (False, False, True), Failure.ABORT),
]


@pytest.mark.parametrize(("code", "flags", "expected"), CASES)
def test_each_error_asks_for_one_thing(
    code: int, flags: tuple[bool, bool, bool], expected: Failure | None
) -> None:
    """Flags first, then the codes whose flag is missing or too weak."""
    fatal, retriable, abort = flags
    error = KafkaError(code, "why", fatal=fatal, retriable=retriable, txn_requires_abort=abort)

    assert classify(error) is expected
    assert error.name() in describe("commit_transaction", error)


@pytest.mark.parametrize("reasons", [FENCED, REFUSED, ENDED])
def test_people_are_told_what_an_error_means_here(reasons: Mapping[int, str]) -> None:
    """The code's name and the relay's own reason, for every code that has one."""
    for code, reason in reasons.items():
        error = KafkaError(code, "why")
        assert describe("flush", error) == f"flush: {error.name()} ({reason})"


def test_no_error_has_two_reasons() -> None:
    """Else the order in which they are looked up would decide."""
    assert not FENCED.keys() & REFUSED.keys()
    assert not ENDED.keys() & (FENCED.keys() | REFUSED.keys())


def test_transport_errors_make_an_answer_ambiguous() -> None:
    """A timeout is one; a rebalance is not."""
    assert KafkaError._TIMED_OUT in TRANSPORT
    assert KafkaError.ILLEGAL_GENERATION not in TRANSPORT


@pytest.mark.parametrize("code", sorted(PASSING))
def test_what_passes_by_itself_is_waited_for(code: int) -> None:
    """Outside transactions the client marks nothing as retriable: seen after broker restarts."""
    assert isinstance(answered("read", KafkaError(code), "grant"), Unavailable)
    schemas = Registry(Kafka(bootstrap="nowhere:1"), "app")
    assert isinstance(schemas._translated(KafkaError(code), "read"), Unavailable)


def test_a_missing_right_is_not_waited_for() -> None:
    """It does not pass until somebody acts."""
    error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert isinstance(answered("read", error, "grant"), Refused)
