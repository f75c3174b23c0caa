"""What becomes of a transaction, for every place where a broker may answer with an error.

One row for all codes of a place that share flag, failure and reason. librdkafka's part (what
it repeats inside, which flag it gives the rest) is measured; the relay's part is
relay.kafka.errors and relay.core.step.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

INSIDE = ""
"""As a flag: no error comes out, librdkafka asks again by itself."""


class Place(Enum):
    """A request, and where in the relay's life it is answered with the error."""

    FIND_TRANSACTION = "FindCoordinator of the transaction, at start"
    INIT = "InitProducerId, at start"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    PRODUCE = "Produce"
    ADD_OFFSETS = "AddOffsetsToTxn"
    FIND_GROUP = "FindCoordinator of the group"
    COMMIT_OFFSETS = "TxnOffsetCommit"
    COMMIT = "EndTxn, commit"
    ABORT = "EndTxn, abort"


@dataclass(frozen=True, slots=True)
class Row:
    """What one answer leads to.

    Attributes:
        codes: names of KafkaError, any one of them once.
        flag: of the error as the client raises it: fatal, abort, none, or INSIDE.
        failure: what relay.kafka.errors makes of it.
        did: what the core did about it, in order.
    """

    place: Place
    codes: str
    flag: str
    failure: str
    did: str
    why: str


_COORDINATOR = "COORDINATOR_LOAD_IN_PROGRESS CONCURRENT_TRANSACTIONS"
_MOVED = "COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR"
_DISK = "KAFKA_STORAGE_ERROR NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND"
_GROUP = "ILLEGAL_GENERATION UNKNOWN_MEMBER_ID"
_FENCED = "INVALID_PRODUCER_EPOCH PRODUCER_FENCED"
_FORGOTTEN = "INVALID_PRODUCER_ID_MAPPING UNKNOWN_PRODUCER_ID"
_OWN_RIGHTS = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED"
_RIGHTS = "GROUP_AUTHORIZATION_FAILED TOPIC_AUTHORIZATION_FAILED"
_SETTINGS = "MSG_SIZE_TOO_LARGE INVALID_TRANSACTION_TIMEOUT UNSUPPORTED_VERSION"
_OTHER = "INVALID_REQUEST UNKNOWN"

CODES = frozenset(
    " ".join([
        *("_TRANSPORT REQUEST_TIMED_OUT INVALID_TXN_STATE OUT_OF_ORDER_SEQUENCE_NUMBER",),
        *("FENCED_INSTANCE_ID UNKNOWN_TOPIC_OR_PART", _COORDINATOR, _MOVED, _DISK, _GROUP),
        *(_FENCED, _FORGOTTEN, _OWN_RIGHTS, _RIGHTS, _SETTINGS, _OTHER),
    ]).split()
)  # fmt: skip
"""Codes that a broker may answer with, a disconnect first; each is tried at each place but two."""

TRIED: dict[Place, frozenset[str]] = dict.fromkeys(Place, CODES) | {
    Place.FIND_TRANSACTION: frozenset(
        f"_TRANSPORT REQUEST_TIMED_OUT UNKNOWN {_MOVED} {_OWN_RIGHTS}".split()
    ),
    Place.INIT: frozenset(
        "_TRANSPORT REQUEST_TIMED_OUT INVALID_TXN_STATE INVALID_TRANSACTION_TIMEOUT UNKNOWN "
        f"{_COORDINATOR} {_MOVED} {_FENCED} {_FORGOTTEN} {_OWN_RIGHTS}".split()
    ),
    Place.FIND_GROUP: frozenset(
        f"_TRANSPORT COORDINATOR_NOT_AVAILABLE UNKNOWN {_OWN_RIGHTS} {_RIGHTS}".split()
    ),
}
"""A search for a coordinator and InitProducerId are tried with what Kafka answers them with."""

_LOST = "a request may have been sent twice: its copy could end a later transaction"
_NOT_YET = "the coordinator asks to try again"
_MOVES = "the coordinator moves, and the connection to the old one is given up mid-transaction"
_TAKEN = "whoever holds the identity now has fenced this process: two must not fight"
_RIGHT = "granting takes a person: trying on at full speed helps nobody"
_SAME = "the next transaction would be refused for the same reason"
_STATE = "the coordinator has ended the transaction: only a new epoch may go on"
_CLEAN_ABORT = "nothing of it is visible, an abort ends it, the floors are read again"
_PURGED = "an abort ends it, but librdkafka purged its records and would purge the next ones"
_NO_FLAG = "a record is lost and no flag says that an abort is enough"
_ASKED_AGAIN = "nothing is lost, librdkafka asks again"
_NO_ABORT = "the abort itself failed, so only a new epoch surely ends the transaction"

_STARTS = (
    Row(Place.FIND_TRANSACTION, f"_TRANSPORT REQUEST_TIMED_OUT UNKNOWN {_MOVED}", INSIDE, "",
        "commit", "no transaction is open yet, so nothing can be doubled"),
    Row(Place.FIND_TRANSACTION, _OWN_RIGHTS, "fatal", "REFUSED", "exit 5", _RIGHT),
    Row(Place.INIT, f"_TRANSPORT REQUEST_TIMED_OUT INVALID_TXN_STATE UNKNOWN {_COORDINATOR} "
        f"{_MOVED} {_FORGOTTEN}", INSIDE, "", "commit",
        "no transaction is open yet; what lasts is left at relay.wait_for_servers_seconds"),
    Row(Place.INIT, _FENCED, "fatal", "FENCED", "exit 7", _TAKEN),
    Row(Place.INIT, _OWN_RIGHTS, "fatal", "REFUSED", "exit 5", _RIGHT),
    Row(Place.INIT, "INVALID_TRANSACTION_TIMEOUT", "fatal", "REFUSED", "exit 5", _SAME),
)  # fmt: skip

_RECORDS = (
    Row(Place.ADD_PARTITIONS, "_TRANSPORT", INSIDE, "", "commit, replace", _LOST),
    Row(Place.ADD_PARTITIONS, _MOVED, INSIDE, "", "commit, replace", _MOVES),
    Row(Place.ADD_PARTITIONS, f"{_COORDINATOR} UNKNOWN_TOPIC_OR_PART", INSIDE, "", "commit",
        _NOT_YET),
    Row(Place.ADD_PARTITIONS, "INVALID_TXN_STATE", "fatal", "UNKNOWN", "replace", _STATE),
    Row(Place.ADD_PARTITIONS, _FENCED, "fatal", "FENCED", "exit 7", _TAKEN),
    Row(Place.ADD_PARTITIONS, "FENCED_INSTANCE_ID", "abort", "FENCED", "exit 7", _TAKEN),
    Row(Place.ADD_PARTITIONS, _OWN_RIGHTS, "fatal", "REFUSED", "exit 5", _RIGHT),
    Row(Place.ADD_PARTITIONS, _RIGHTS, "abort", "REFUSED", "exit 5", _RIGHT),
    Row(Place.ADD_PARTITIONS, _SETTINGS, "abort", "REFUSED", "exit 5", _SAME),
    Row(Place.ADD_PARTITIONS, f"REQUEST_TIMED_OUT OUT_OF_ORDER_SEQUENCE_NUMBER {_FORGOTTEN} "
        f"{_DISK} {_GROUP} {_OTHER}", "abort", "ABORT", "abort, replace", _PURGED),
    Row(Place.PRODUCE, "_TRANSPORT", INSIDE, "", "commit, replace", _LOST),
    Row(Place.PRODUCE, "REQUEST_TIMED_OUT COORDINATOR_LOAD_IN_PROGRESS UNKNOWN_TOPIC_OR_PART "
        f"{_MOVED} {_DISK}", INSIDE, "", "commit",
        "the sequence number lets the broker drop a second copy"),
    Row(Place.PRODUCE, f"CONCURRENT_TRANSACTIONS INVALID_TXN_STATE {_FORGOTTEN} {_GROUP} {_OTHER}",
        "none", "UNKNOWN", "replace", _NO_FLAG),
    Row(Place.PRODUCE, "OUT_OF_ORDER_SEQUENCE_NUMBER", "fatal", "UNKNOWN", "replace", _NO_FLAG),
    Row(Place.PRODUCE, "INVALID_PRODUCER_EPOCH", "fatal", "FENCED", "exit 7", _TAKEN),
    Row(Place.PRODUCE, "PRODUCER_FENCED FENCED_INSTANCE_ID", "none", "FENCED", "exit 7", _TAKEN),
    Row(Place.PRODUCE, f"{_OWN_RIGHTS} {_RIGHTS}", "none", "REFUSED", "exit 5", _RIGHT),
    Row(Place.PRODUCE, _SETTINGS, "none", "REFUSED", "exit 5", _SAME),
)  # fmt: skip

_OFFSETS = (
    Row(Place.ADD_OFFSETS, "_TRANSPORT", INSIDE, "", "commit, replace", _LOST),
    Row(Place.ADD_OFFSETS, f"REQUEST_TIMED_OUT UNKNOWN_TOPIC_OR_PART {_COORDINATOR} {_MOVED}",
        INSIDE, "", "commit", _NOT_YET),
    Row(Place.ADD_OFFSETS, "INVALID_TXN_STATE", "fatal", "UNKNOWN", "replace", _STATE),
    Row(Place.ADD_OFFSETS, "INVALID_PRODUCER_EPOCH", "fatal", "FENCED", "exit 7", _TAKEN),
    Row(Place.ADD_OFFSETS, "PRODUCER_FENCED FENCED_INSTANCE_ID", "abort", "FENCED", "exit 7",
        _TAKEN),
    Row(Place.ADD_OFFSETS, _OWN_RIGHTS, "fatal", "REFUSED", "exit 5", _RIGHT),
    Row(Place.ADD_OFFSETS, _RIGHTS, "abort", "REFUSED", "exit 5", _RIGHT),
    Row(Place.ADD_OFFSETS, _SETTINGS, "abort", "REFUSED", "exit 5", _SAME),
    Row(Place.ADD_OFFSETS, f"OUT_OF_ORDER_SEQUENCE_NUMBER {_FORGOTTEN} {_DISK} {_GROUP} {_OTHER}",
        "abort", "ABORT", "abort", _CLEAN_ABORT),
    Row(Place.FIND_GROUP, "_TRANSPORT", INSIDE, "", "commit, replace", _LOST),
    Row(Place.FIND_GROUP, "COORDINATOR_NOT_AVAILABLE", INSIDE, "", "commit", _ASKED_AGAIN),
    Row(Place.FIND_GROUP, _OWN_RIGHTS, "fatal", "REFUSED", "exit 5", _RIGHT),
    Row(Place.FIND_GROUP, _RIGHTS, "abort", "REFUSED", "exit 5", _RIGHT),
    Row(Place.FIND_GROUP, "UNKNOWN", "abort", "ABORT", "abort", _CLEAN_ABORT),
    Row(Place.COMMIT_OFFSETS, "_TRANSPORT", INSIDE, "", "commit, replace", _LOST),
    Row(Place.COMMIT_OFFSETS, f"REQUEST_TIMED_OUT UNKNOWN_TOPIC_OR_PART {_COORDINATOR} {_MOVED}",
        INSIDE, "", "commit", _ASKED_AGAIN),
    Row(Place.COMMIT_OFFSETS, "INVALID_TXN_STATE INVALID_PRODUCER_ID_MAPPING", "fatal", "UNKNOWN",
        "replace", _STATE),
    Row(Place.COMMIT_OFFSETS, "INVALID_PRODUCER_EPOCH", "fatal", "FENCED", "exit 7", _TAKEN),
    Row(Place.COMMIT_OFFSETS, "PRODUCER_FENCED FENCED_INSTANCE_ID", "abort", "FENCED", "exit 7",
        _TAKEN),
    Row(Place.COMMIT_OFFSETS, _OWN_RIGHTS, "fatal", "REFUSED", "exit 5", _RIGHT),
    Row(Place.COMMIT_OFFSETS, _RIGHTS, "abort", "REFUSED", "exit 5", _RIGHT),
    Row(Place.COMMIT_OFFSETS, _SETTINGS, "abort", "REFUSED", "exit 5", _SAME),
    Row(Place.COMMIT_OFFSETS, _GROUP, "abort", "ABORT", "abort",
        "the group has moved on: another member may own the partitions"),
    Row(Place.COMMIT_OFFSETS, f"UNKNOWN_PRODUCER_ID OUT_OF_ORDER_SEQUENCE_NUMBER {_DISK} {_OTHER}",
        "abort", "ABORT", "abort", _CLEAN_ABORT),
)  # fmt: skip

_ENDS = (
    Row(Place.COMMIT, "_TRANSPORT", INSIDE, "", "commit, replace", _LOST),
    Row(Place.COMMIT, _MOVED, INSIDE, "", "commit, replace", _MOVES),
    Row(Place.COMMIT, _COORDINATOR, INSIDE, "", "commit", _NOT_YET),
    Row(Place.COMMIT, "REQUEST_TIMED_OUT", "abort", "ABORT", "abort, replace",
        "the broker itself does not know: a commit may still come"),
    Row(Place.COMMIT, "INVALID_TXN_STATE", "fatal", "UNKNOWN", "replace", _STATE),
    Row(Place.COMMIT, _FENCED, "fatal", "FENCED", "exit 7", _TAKEN),
    Row(Place.COMMIT, "FENCED_INSTANCE_ID", "abort", "FENCED", "exit 7", _TAKEN),
    Row(Place.COMMIT, _OWN_RIGHTS, "fatal", "REFUSED", "exit 5", _RIGHT),
    Row(Place.COMMIT, _RIGHTS, "abort", "REFUSED", "exit 5", _RIGHT),
    Row(Place.COMMIT, _SETTINGS, "abort", "REFUSED", "exit 5", _SAME),
    Row(Place.COMMIT, f"OUT_OF_ORDER_SEQUENCE_NUMBER UNKNOWN_TOPIC_OR_PART {_FORGOTTEN} {_DISK} "
        f"{_GROUP} {_OTHER}", "abort", "ABORT", "abort",
        "the coordinator takes an abort only of what it has not committed; floors are read again"),
    Row(Place.ABORT, "_TRANSPORT", INSIDE, "UNKNOWN", "abort, replace", _LOST),
    Row(Place.ABORT, _MOVED, INSIDE, "UNKNOWN", "abort, replace", _MOVES),
    Row(Place.ABORT, _COORDINATOR, INSIDE, "", "abort", _NOT_YET),
    Row(Place.ABORT, _FORGOTTEN, INSIDE, "UNKNOWN", "abort, replace",
        "librdkafka takes a new epoch by itself, but its log shows no answer to EndTxn"),
    Row(Place.ABORT, "INVALID_TXN_STATE", "fatal", "UNKNOWN", "abort, replace", _STATE),
    Row(Place.ABORT, _FENCED, "fatal", "FENCED", "abort, exit 7", _TAKEN),
    Row(Place.ABORT, "FENCED_INSTANCE_ID", "abort", "FENCED", "abort, exit 7", _TAKEN),
    Row(Place.ABORT, _OWN_RIGHTS, "fatal", "REFUSED", "abort, exit 5", _RIGHT),
    Row(Place.ABORT, _RIGHTS, "abort", "REFUSED", "abort, exit 5", _RIGHT),
    Row(Place.ABORT, _SETTINGS, "abort", "REFUSED", "abort, exit 5", _SAME),
    Row(Place.ABORT, "REQUEST_TIMED_OUT OUT_OF_ORDER_SEQUENCE_NUMBER UNKNOWN_TOPIC_OR_PART "
        f"{_DISK} {_GROUP} {_OTHER}", "abort", "ABORT", "abort, replace", _NO_ABORT),
)  # fmt: skip

TABLE = (*_STARTS, *_RECORDS, *_OFFSETS, *_ENDS)

LASTING = (
    Row(Place.INIT, "CONCURRENT_TRANSACTIONS", "retriable", "UNKNOWN", "exit 4",
        "the predecessor's transaction does not end: wait, then say so"),
    Row(Place.ADD_PARTITIONS, "UNKNOWN_TOPIC_OR_PART", "none", "UNKNOWN", "replace", _NO_FLAG),
    Row(Place.PRODUCE, "NOT_ENOUGH_REPLICAS", "none", "UNKNOWN", "replace", _NO_FLAG),
    Row(Place.ADD_OFFSETS, "COORDINATOR_LOAD_IN_PROGRESS", "retriable", "UNKNOWN", "replace",
        "the deadline of one call is over"),
    Row(Place.COMMIT_OFFSETS, "UNKNOWN_TOPIC_OR_PART", "abort", "ABORT", "abort",
        "librdkafka's own time for it is over, and nothing was lost"),
    Row(Place.COMMIT_OFFSETS, "_TRANSPORT", "abort", "ABORT", "abort, replace", _LOST),
    Row(Place.COMMIT, "_TRANSPORT CONCURRENT_TRANSACTIONS", "retriable", "UNKNOWN", "replace",
        "the deadline of one call is over: whether it committed is not known"),
)  # fmt: skip
"""The same errors, answered for as long as anybody asks."""
