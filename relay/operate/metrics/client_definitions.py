"""Which of librdkafka's own statistics are shown, where they stand in its JSON, in which unit.

A selection: what an operator can act upon. Each has the label `client`, consumer or producer. A
producer that replaces another begins its totals anew, as a restarted process does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from relay.program.metric import Metric, counter, gauge

MICRO, MILLI = 1e-6, 1e-3
"""librdkafka's units, in seconds."""
WINDOW = ("avg", "p99", "max")
"""Of a duration in the last interval: values of the label `of`."""


@dataclass(frozen=True, slots=True)
class ClientMetric:
    """A metric, the key it has in librdkafka's JSON, and what the value is multiplied with."""

    metric: Metric
    key: str
    scale: float = 1.0


def _total(key: str, name: str, unit: str, question: str) -> ClientMetric:
    return ClientMetric(counter(f"relay_kafka_{name}_total", unit, question, "client"), key)


def _now(key: str, name: str, unit: str, question: str, *labels: str) -> ClientMetric:
    return ClientMetric(gauge(f"relay_kafka_{name}", unit, question, "client", *labels), key)


def _since(key: str, name: str, question: str, scale: float) -> ClientMetric:
    metric = gauge(f"relay_kafka_{name}_seconds", "seconds", question, "client")
    return ClientMetric(metric, key, scale)


def _with_labels(labels: tuple[str, ...], *shown: ClientMetric) -> tuple[ClientMetric, ...]:
    return tuple(replace(one, metric=one.metric.labelled(*labels)) for one in shown)


CLIENT = (
    _total("tx", "requests", "requests", "How many requests did the client send?"),
    _total("tx_bytes", "sent_bytes", "bytes", "How many bytes did the client send to brokers?"),
    _total("rx", "responses", "responses", "How many responses did the client receive?"),
    _total(
        "rx_bytes", "received_bytes", "bytes", "How many bytes did the client receive from brokers?"
    ),
    _total("txmsgs", "sent_messages", "messages", "How many records did the client send?"),
    _total(
        "txmsg_bytes",
        "sent_message_bytes",
        "bytes",
        "How many bytes of records did the client send?",
    ),
    _total("rxmsgs", "received_messages", "messages", "How many records did the client fetch?"),
    _total(
        "rxmsg_bytes",
        "received_message_bytes",
        "bytes",
        "How many bytes of records did the client fetch?",
    ),
    _since("age", "client_age", "How long ago was the client created?", MICRO),
    _now(
        "replyq", "reply_queue", "operations", "How many events wait for the program to poll them?"
    ),
    _now(
        "msg_cnt", "queued_messages", "messages", "How many records wait in the client to be sent?"
    ),
    _now(
        "msg_size",
        "queued_bytes",
        "bytes",
        "How many bytes of records wait in the client to be sent?",
    ),
    _now("msg_max", "queue_limit_messages", "messages", "How many records may wait in the client?"),
    _now(
        "msg_size_max",
        "queue_limit_bytes",
        "bytes",
        "How many bytes of records may wait in the client?",
    ),
    _now(
        "metadata_cache_cnt",
        "known_topics",
        "topics",
        "How many topics are in the client's metadata cache?",
    ),
)
"""At the top."""

BROKER = _with_labels(
    ("broker",),
    _since(
        "stateage",
        "broker_state",
        "For how long has the connection to the broker been in its state?",
        MICRO,
    ),
    _now("outbuf_cnt", "broker_requests_waiting", "requests", "How many requests wait to be sent?"),
    _now(
        "outbuf_msg_cnt",
        "broker_messages_waiting",
        "messages",
        "How many records are in requests that wait to be sent?",
    ),
    _now(
        "waitresp_cnt",
        "broker_requests_open",
        "requests",
        "How many requests have no response yet?",
    ),
    _now(
        "waitresp_msg_cnt",
        "broker_messages_open",
        "messages",
        "How many records are in requests without a response?",
    ),
    _total("tx", "broker_requests", "requests", "How many requests went to the broker?"),
    _total("txbytes", "broker_sent_bytes", "bytes", "How many bytes went to the broker?"),
    _total("txerrs", "broker_send_errors", "errors", "How many sends to the broker failed?"),
    _total("txretries", "broker_retries", "requests", "How many requests were sent again?"),
    _total("req_timeouts", "broker_timeouts", "requests", "How many requests timed out?"),
    _total("rx", "broker_responses", "responses", "How many responses came from the broker?"),
    _total("rxbytes", "broker_received_bytes", "bytes", "How many bytes came from the broker?"),
    _total("rxerrs", "broker_receive_errors", "errors", "How many receives failed?"),
    _total(
        "rxpartial", "broker_partial", "messages", "How many records were cut off at a fetch's end?"
    ),
    _total("connects", "broker_connects", "connections", "How often did the client connect?"),
    _total(
        "disconnects", "broker_disconnects", "connections", "How often was the connection lost?"
    ),
)
"""Of each broker."""

BROKER_UP = _now("state", "broker_up", "1 or 0", "Is the client connected to the broker?", "broker")
BROKER_WINDOWS = _with_labels(
    ("broker", "of"),
    _since("rtt", "broker_rtt", "How long does the broker take to answer?", MICRO),
    _since(
        "int_latency",
        "broker_queue_latency",
        "How long does a record wait in the client before it is in a request?",
        MICRO,
    ),
    _since(
        "outbuf_latency",
        "broker_send_latency",
        "How long does a request wait before it is sent?",
        MICRO,
    ),
    _since(
        "throttle",
        "broker_throttle",
        "How long did the broker delay the client because of a quota?",
        MILLI,
    ),
)
"""Of each broker: durations of the last interval."""

PARTITION = _with_labels(
    ("partition",),
    _now(
        "fetchq_cnt",
        "partition_fetched_messages",
        "messages",
        "How many records wait to be polled?",
    ),
    _now("fetchq_size", "partition_fetched_bytes", "bytes", "How many bytes wait to be polled?"),
    _now("lo_offset", "partition_first_offset", "offset", "What is the log's first offset?"),
    _now("hi_offset", "partition_high_watermark", "offset", "What is the high watermark?"),
    _now(
        "ls_offset",
        "partition_last_stable_offset",
        "offset",
        "What is the last stable offset (an open transaction in the source holds it back)?",
    ),
    _now("leader", "partition_leader", "broker id", "Which broker leads the partition?"),
    _total("rxmsgs", "partition_received_messages", "messages", "How many records were fetched?"),
)
"""Of each assigned partition of the source topic."""
FETCHING = _now(
    "fetch_state", "partition_fetching", "1 or 0", "Is the partition fetched?", "partition"
)

BATCHES = (
    _now("batchsize", "batch_bytes", "bytes", "How many bytes does a batch of records have?", "of"),
    _now("batchcnt", "batch_messages", "messages", "How many records does a batch have?", "of"),
)
"""Of the producer, over all topics: average and largest of the last interval."""

GROUP = (
    _since("stateage", "group_state", "For how long has the membership been in its state?", MILLI),
    _since("rebalance_age", "group_rebalance_age", "How long ago was the last rebalance?", MILLI),
    _total("rebalance_cnt", "group_rebalances", "rebalances", "How often did the group rebalance?"),
    _now(
        "assignment_size",
        "group_assignment",
        "partitions",
        "How many partitions does the client have?",
    ),
)
"""Of the consumer's membership."""
GROUP_UP = _now(
    "state", "group_up", "1 or 0", "Is the client connected to the group's coordinator?"
)
GROUP_STEADY = _now(
    "join_state", "group_steady", "1 or 0", "Is the group stable (no rebalance under way)?"
)
WELL = (BROKER_UP, FETCHING, GROUP_UP, GROUP_STEADY)
"""What is 1 while all is well: 0 where nothing is known any more."""

TRANSACTIONAL = (
    _since(
        "txn_stateage",
        "transaction_state",
        "For how long has the transaction been in its state?",
        MILLI,
    ),
    _since("idemp_stateage", "producer_state", "For how long has the producer had its id?", MILLI),
    _now("producer_id", "producer_id", "id", "What is the producer id?"),
    _now("producer_epoch", "producer_epoch", "epoch", "What is the epoch of the producer id?"),
    _now("txn_may_enq", "transaction_open", "1 or 0", "Is a transaction open?"),
)
"""Of the transactional producer."""

SHOWN = (
    *CLIENT,
    BROKER_UP,
    *BROKER,
    *BROKER_WINDOWS,
    FETCHING,
    *PARTITION,
    *BATCHES,
    GROUP_UP,
    GROUP_STEADY,
    *GROUP,
    *TRANSACTIONAL,
)
CLIENTS: tuple[Metric, ...] = (
    gauge(
        "relay_kafka_statistics_seconds",
        "seconds",
        "How old are these statistics of the client?",
        "client",
    ),
    *(shown.metric for shown in SHOWN),
)
"""All metrics of the clients."""
