"""What each Kafka error asks of the relay, in one place.

Receives a KafkaError and the call it came from; gives a Failure, or None for
"call again with the same arguments". Flags first, as librdkafka's documentation
orders them, then the codes whose flag is missing or too weak.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaError

from relay.core.events import Failure

if TYPE_CHECKING:
    from collections.abc import Mapping

FENCED: Mapping[int, str] = {
    KafkaError._FENCED: "a newer producer holds the transactional id",  # noqa: SLF001
    KafkaError.PRODUCER_FENCED: "a newer producer holds the transactional id",
    KafkaError.INVALID_PRODUCER_EPOCH: "a newer epoch of the transactional id exists: a "
    "successor's, or the coordinator's after the transaction timed out",
    KafkaError.FENCED_INSTANCE_ID: "another member holds the group.instance.id",
    KafkaError.UNRELEASED_INSTANCE_ID: "the group.instance.id is held by a member still alive",
}

REFUSED: Mapping[int, str] = {
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "needs Write and Describe on it",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "needs Write (blocks) or Read (source) on the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "needs Read on the consumer group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "needs IdempotentWrite on the cluster",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "exceeds the broker's transaction.max.timeout.ms",
    KafkaError._AUTHENTICATION: "wrong user, password or certificate",  # noqa: SLF001
    KafkaError.SASL_AUTHENTICATION_FAILED: "wrong user or password",
}

TRANSPORT: frozenset[int] = frozenset(
    {
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
        KafkaError._MSG_TIMED_OUT,  # noqa: SLF001
        KafkaError.REQUEST_TIMED_OUT,
    }
)
"""Seen between begin and end, these make the answer to EndTxn ambiguous (librdkafka#5423):
it may have been sent twice, and the copy may end a later transaction of the same epoch."""


def classify(error: KafkaError) -> Failure | None:
    """The failure that `error` of a transactional call means; None: retry the same call.

    An error with no flag at all is UNKNOWN: librdkafka's documentation says to treat it as
    fatal, and for a commit fatal does not mean "not committed" (librdkafka#4558).
    """
    if error.code() in FENCED:
        return Failure.FENCED
    if error.txn_requires_abort():
        # Rights may be granted meanwhile, but not by trying at full speed: say it and stop.
        return Failure.REFUSED if error.code() in REFUSED else Failure.ABORT
    if error.retriable():
        return None
    if error.code() in REFUSED:
        return Failure.REFUSED
    return Failure.UNKNOWN


def describe(call: str, error: KafkaError) -> str:
    """One line for people: the call, the code's name, what it means here."""
    known = FENCED.get(error.code()) or REFUSED.get(error.code())
    return f"{call}: {error.name()} ({known or error.str()})"
