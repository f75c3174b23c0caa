"""What each Kafka error asks of the relay, in one place.

Receives a KafkaError and the call it came from; gives a Failure, or None for
"call again with the same arguments". Flags first, as librdkafka's documentation
orders them, then the codes whose flag is missing or too weak. Of a refusal that names only the
brokers' limit it asks them for the number.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented, not in __all__
    AdminClient,
    ConfigResource,
    ResourceType,
)

from relay.config import kafka_clients
from relay.config.settings import Brokers
from relay.core.events import Failure
from relay.errors import Fenced, Refused, RelayError, Unavailable, WrongCredentials
from relay.kafka.connection_errors import CREDENTIALS

Raised = TypeVar("Raised", bound=BaseException)

UNTOLD = "to be told the limit, this user needs DescribeConfigs on the cluster"
_MOST_MS = "transaction.max.timeout.ms"
_REQUEST_SECONDS = 10.0

FENCED: Mapping[int, str] = {
    KafkaError._FENCED: "a newer producer holds the transactional id",  # noqa: SLF001
    KafkaError.PRODUCER_FENCED: "a newer producer holds the transactional id",
    KafkaError.INVALID_PRODUCER_EPOCH: "a newer epoch of the transactional id exists: a "
    "successor's, or the coordinator's after the transaction timed out",
    KafkaError.FENCED_INSTANCE_ID: "another member holds the group.instance.id",
    KafkaError.UNRELEASED_INSTANCE_ID: "the group.instance.id is held by a member still alive",
}

REFUSED: Mapping[int, str] = {
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "this user needs Write on the "
    "transactional id",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "this user needs Write (block topics) or Read (source "
    "topic) on the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "this user needs Read on the consumer group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "this user needs IdempotentWrite on the cluster",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "relay.transaction_timeout_seconds exceeds the "
    "brokers' transaction.max.timeout.ms",
    KafkaError.INVALID_SESSION_TIMEOUT: "the brokers allow no session of that length",
    KafkaError._AUTHENTICATION: "wrong user, password or certificate",  # noqa: SLF001
    KafkaError.SASL_AUTHENTICATION_FAILED: "wrong user or password",
    # The same records would be refused again, by any producer.
    KafkaError.MSG_SIZE_TOO_LARGE: "the record exceeds the topic's max.message.bytes: raise "
    "that, or lower block.chunk_bytes. For a dead letter also raise message.max.bytes in "
    "kafka.client, and set compression.type there to that of the source message",
    KafkaError.RECORD_LIST_TOO_LARGE: "the record exceeds the topic's segment.bytes",
    KafkaError.INVALID_TIMESTAMP: "the topic refuses the record's time, so this machine's clock is "
    "probably far from the brokers': set the clocks by NTP, or let the brokers' clock count (set "
    "message.timestamp.type = LogAppendTime for the topic)",
    KafkaError.INVALID_RECORD: "the topic's settings do not allow this record",
    KafkaError.POLICY_VIOLATION: "a policy of the brokers forbids it",
    KafkaError.OFFSET_METADATA_TOO_LARGE: "the offset's metadata exceeds the brokers' "
    "offset.metadata.max.bytes",
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT: "the topic's message format is older than "
    "transactions",
    KafkaError.UNSUPPORTED_VERSION: "the brokers are too old",
    KafkaError._UNSUPPORTED_FEATURE: "the brokers are too old",  # noqa: SLF001
}

ENDED: Mapping[int, str] = {
    KafkaError.ILLEGAL_GENERATION: "the group rebalanced since the transaction began",
    KafkaError.REBALANCE_IN_PROGRESS: "the group is rebalancing",
    KafkaError.UNKNOWN_MEMBER_ID: "the group removed this member because its session timed out",
    KafkaError.INVALID_TXN_STATE: "the coordinator ended this transaction, or knows no open one",
    KafkaError.INVALID_PRODUCER_ID_MAPPING: "the coordinator no longer knows the transactional id",
    KafkaError.UNKNOWN_PRODUCER_ID: "the partition's leader no longer knows the producer",
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER: "records before this one never arrived",
    KafkaError._MSG_TIMED_OUT: "not acknowledged within the transaction's time",  # noqa: SLF001
}
"""What a transaction fails of once and the next one does not: its flags say whether an abort
is enough or the producer is of no more use, and the committed truth is read again anyhow."""

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


PASSING: frozenset[int] = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.NOT_CONTROLLER,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        # A topic is to be created while a broker is away: fewer are there than it has replicas.
        KafkaError.INVALID_REPLICATION_FACTOR,
    }
)
"""Answers while leaders and coordinators move, as after every end of a broker. Outside
transactions the client does not mark them as retriable."""

SYMPTOMS = frozenset(
    {
        KafkaError._PURGE_QUEUE,  # noqa: SLF001
        KafkaError._PURGE_INFLIGHT,  # noqa: SLF001
        KafkaError._STATE,  # noqa: SLF001
        KafkaError._FATAL,  # noqa: SLF001
    }
)
"""What records and calls answer once their transaction has failed of something else."""


NOWHERE = KafkaError(
    KafkaError.DUPLICATE_SEQUENCE_NUMBER,
    "the broker acknowledged the record without an offset, so the record may be missing",
)
"""Of a record that librdkafka reports as delivered, but not where. It concludes so when a later
record of the producer is accepted; but to a partition new to the producer the broker accepts
any first sequence number. So where the leader refused the first requests and took the third
(NOT_LEADER, as a topic is just made), the first two records are lost, and reported delivered."""


TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
"""Said of a record, or of the batch that it was sent in."""

OF_TOPIC = frozenset({KafkaError.INVALID_RECORD, KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT})
"""Said of a record for what its topic is."""


class Lost(NamedTuple):
    """A record that the brokers, or the client, refused.

    Attributes:
        size: by relay.kafka.record_limits.record_bytes.
        error: what was said.
        alone: whether nothing else was in its batch, so that the answer is about this record.
    """

    topic: str
    size: int
    error: KafkaError
    alone: bool = True


class TransactionFailed(Exception):
    """A transactional call did not succeed.

    Args:
        kind: what to do about it.
        why: the call and the error, for people.
        code: of the error; 0 where there is none.
        lost: records that were refused for what they or their topics are.
        dark: topics and partitions with records that are not acknowledged, as they take none.
    """

    def __init__(
        self,
        kind: Failure,
        why: str,
        code: int = 0,
        lost: tuple[Lost, ...] = (),
        dark: frozenset[tuple[str, int]] = frozenset(),
    ) -> None:
        super().__init__(why)
        self.kind = kind
        self.why = why
        self.code = code
        self.lost = lost
        self.dark = dark


_LOST_END = re.compile(r"broker end offset is (-?\d+) \(offset leader epoch")


def is_final(error: KafkaError) -> bool:
    """Return whether the client that says so is of no more use.

    A fatal error may come as a message, which hides its flag (librdkafka 2.16).
    """
    fatal = error.fatal() or error.code() == KafkaError._FATAL  # noqa: SLF001
    return fatal or error.code() in FENCED


def ends_reading(error: KafkaError) -> bool:
    """Return whether the consumer that says so will never read on."""
    return is_final(error) or error.code() in REFUSED


def lost_end(error: KafkaError) -> int | None:
    """Return where a log ends for the leader epoch that was asked for; None for another error.

    A consumer asks the leader for it where it begins with an epoch, and after each election
    (KIP-320). librdkafka (2.16) gives what it hears in the error's text alone. Negative: the leader
    has no record of such an epoch.
    """
    if error.code() != KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
        return None
    match = _LOST_END.search(error.str())
    return None if match is None else int(match[1])


def classify(error: KafkaError) -> Failure | None:
    """Return the failure that `error` of a transactional call means; None: retry the same call.

    An error with no flag at all is UNKNOWN: librdkafka's documentation says to treat it as
    fatal, and for a commit fatal does not mean "not committed" (librdkafka#4558).
    """
    if error.code() in FENCED:
        return Failure.FENCED
    refused = Failure.CREDENTIALS if error.code() in CREDENTIALS else Failure.REFUSED
    if error.txn_requires_abort():
        # Rights may be granted meanwhile, but not by trying at full speed: say it and stop.
        return refused if error.code() in REFUSED else Failure.ABORT
    if error.retriable():
        return None
    return refused if error.code() in REFUSED else Failure.UNKNOWN


def root_cause(symptom: KafkaError, producer: Producer) -> KafkaError:
    """Return what a transaction failed of, where a call of it answers with a symptom only.

    librdkafka ends it by itself, then purges its records. `begin_transaction` inside a
    transaction does nothing but answer with its error, or with _STATE where it has none.
    """
    if symptom.code() not in SYMPTOMS:
        return symptom
    try:
        producer.begin_transaction()
    except KafkaException as error:
        cause: KafkaError = error.args[0]
        return symptom if cause.code() in SYMPTOMS else cause
    return symptom


def drop_frames(error: Raised) -> Raised:
    """Return the exception without where it was raised, and what caused it likewise.

    The binding (2.16) never frees the exception of a fatal error. Its frames would keep the
    client with it, whose threads then look for brokers until the process ends.
    """
    raised: BaseException | None = error
    while raised is not None:
        raised.__traceback__ = None
        raised = raised.__cause__ or raised.__context__
    return error


def ended(failed: TransactionFailed, *, fenced: str, refused: str, unknown: str) -> RelayError:
    """Return the error that ends a command whose transaction failed; a next step for each kind."""
    if failed.kind is Failure.FENCED:
        return Fenced(failed.why, fenced)
    if failed.kind in {Failure.REFUSED, Failure.CREDENTIALS}:
        return refusal(failed.why, refused, failed.code)
    return Unavailable(failed.why, unknown)


def describe(call: str, error: KafkaError) -> str:
    """Return one line for people: the call, the code's name, what it means here."""
    meaning = {**ENDED, **REFUSED, **FENCED}.get(error.code())
    return f"{call}: {error.name()} ({meaning or error.str()})"


def refusal(text: str, step: str, code: int) -> Refused:
    """Return the error for people where the brokers said no, with the next step."""
    if code in CREDENTIALS:
        return WrongCredentials(text, step, code=code)
    return Refused(text, step, code=code)


def answered(what: str, error: KafkaError, step: str) -> Unavailable | Refused:
    """Return the error for people, of a call outside transactions.

    `what` is the call, as an infinitive with what it concerns; `step` is the next one where the
    brokers said no.
    """
    text = f"{what}: {error.name()} ({error.str()})"
    if error.code() in CREDENTIALS:
        return refusal(text, "correct user, password or certificate in kafka.client", error.code())
    if error.code() == KafkaError.INVALID_REPLICATION_FACTOR:
        return Unavailable(text, "start the brokers that are away, or correct kafka.replication")
    # Negative codes are librdkafka's own: no broker answered.
    if error.retriable() or error.code() < 0 or error.code() in PASSING:
        return Unavailable(text, "check kafka.bootstrap and that the brokers are up")
    return refusal(text, step, error.code())


@contextmanager
def answering(what: str, step: str) -> Iterator[None]:
    """Run calls outside transactions; raise what the brokers answer as `answered` has it."""
    try:
        yield
    except KafkaException as error:
        raise answered(what, error.args[0], step) from error


def read_limits(brokers: Brokers, *names: str) -> dict[str, list[int]]:
    """Return what each broker has for these settings, all numbers; nothing if they do not say."""
    admin = AdminClient(kafka_clients.admin(brokers))
    limits: dict[str, list[int]] = defaultdict(list)
    try:
        ids = admin.list_topics(timeout=_REQUEST_SECONDS).brokers
        for broker in ids:
            resource = ConfigResource(ResourceType.BROKER, str(broker))
            futures = admin.describe_configs([resource], request_timeout=_REQUEST_SECONDS)
            answer = futures[resource].result()
            for name in answer.keys() & set(names):
                limits[name].append(int(answer[name].value))
    except KafkaException:
        return {}  # the refusal itself is what matters; `relay doctor` says why
    return limits


def timeout_refused(text: str, setting: str, asked_ms: int, brokers: Brokers) -> Refused:
    """Return the error of a transaction that may take too long, with both numbers.

    `text` says what was refused, with only the name of the brokers' limit; `setting` is the one
    that allows `asked_ms`.
    """
    allowed_ms = min(read_limits(brokers, _MOST_MS).get(_MOST_MS, ()), default=None)
    if allowed_ms is None:
        limit, remedy = UNTOLD, f"lower {setting}"
    else:
        limit, remedy = f"{_MOST_MS} = {allowed_ms}", f"set {setting} = {allowed_ms / 1000:g}"
    return Refused(
        f"{text}: {setting} is {asked_ms} ms, and the brokers allow less ({limit})",
        f"{remedy}, or raise {_MOST_MS} of the brokers, then start again",
    )
