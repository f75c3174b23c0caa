"""Which of librdkafka's own statistics are shown, where they stand in its JSON, in which unit.

A selection: what an operator can act upon. Each has the label `client`, consumer or producer. A
producer that replaces another begins its totals anew, as a restarted process does.
"""

from __future__ import annotations

from dataclasses import dataclass

from relay.program.metric import Metric, counter, gauge

MICRO, MILLI = 1e-6, 1e-3
"""Of librdkafka's units in a second."""
WINDOW = ("avg", "p99", "max")
"""Of a duration in the last interval: values of the label `of`."""


@dataclass(frozen=True, slots=True)
class ClientMetric:
    """A metric, the key it has in librdkafka's JSON, and what the value is multiplied with."""

    metric: Metric
    key: str
    scale: float = 1.0


def _total(key: str, name: str, unit: str, question: str, *labels: str) -> ClientMetric:
    return ClientMetric(
        counter(f"relay_kafka_{name}_total", unit, question, "client", *labels), key
    )


def _now(key: str, name: str, unit: str, question: str, *labels: str) -> ClientMetric:
    return ClientMetric(gauge(f"relay_kafka_{name}", unit, question, "client", *labels), key)


def _since(key: str, name: str, question: str, scale: float, *labels: str) -> ClientMetric:
    metric = gauge(f"relay_kafka_{name}_seconds", "seconds", question, "client", *labels)
    return ClientMetric(metric, key, scale)


CLIENT = (
    _total("tx", "requests", "requests", "How many requests are sent?"),
    _total("tx_bytes", "sent_bytes", "bytes", "How much goes to the brokers?"),
    _total("rx", "responses", "responses", "How many answers come?"),
    _total("rx_bytes", "received_bytes", "bytes", "How much comes from the brokers?"),
    _total("txmsgs", "sent_messages", "messages", "How many records are sent?"),
    _total("txmsg_bytes", "sent_message_bytes", "bytes", "How large are they together?"),
    _total("rxmsgs", "received_messages", "messages", "How many records are fetched?"),
    _total("rxmsg_bytes", "received_message_bytes", "bytes", "How large are they together?"),
    _since("age", "client_age", "How old is the client?", MICRO),
    _now("replyq", "reply_queue", "operations", "Does the program hear its client too rarely?"),
    _now("msg_cnt", "queued_messages", "messages", "How many records wait to be sent?"),
    _now("msg_size", "queued_bytes", "bytes", "How large are they together?"),
    _now("msg_max", "queue_limit_messages", "messages", "How many may wait?"),
    _now("msg_size_max", "queue_limit_bytes", "bytes", "How large may they be together?"),
    _now("metadata_cache_cnt", "known_topics", "topics", "How many topics does it know?"),
)
"""At the top."""

_OF_BROKER = "broker"
BROKER = (
    _since("stateage", "broker_state", "How long is it in that state?", MICRO, _OF_BROKER),
    _now("outbuf_cnt", "broker_requests_waiting", "requests", "What is not sent?", _OF_BROKER),
    _now(
        "outbuf_msg_cnt",
        "broker_messages_waiting",
        "messages",
        "With how many records?",
        _OF_BROKER,
    ),
    _now("waitresp_cnt", "broker_requests_open", "requests", "What has no answer?", _OF_BROKER),
    _now(
        "waitresp_msg_cnt", "broker_messages_open", "messages", "With how many records?", _OF_BROKER
    ),
    _total("tx", "broker_requests", "requests", "Which broker gets the work?", _OF_BROKER),
    _total("txbytes", "broker_sent_bytes", "bytes", "How much goes to each?", _OF_BROKER),
    _total("txerrs", "broker_send_errors", "errors", "Does sending fail?", _OF_BROKER),
    _total("txretries", "broker_retries", "requests", "What is sent again?", _OF_BROKER),
    _total("req_timeouts", "broker_timeouts", "requests", "What gets no answer?", _OF_BROKER),
    _total("rx", "broker_responses", "responses", "Which broker answers?", _OF_BROKER),
    _total("rxbytes", "broker_received_bytes", "bytes", "How much comes from each?", _OF_BROKER),
    _total("rxerrs", "broker_receive_errors", "errors", "Does receiving fail?", _OF_BROKER),
    _total("rxpartial", "broker_partial", "messages", "Is a fetch too small?", _OF_BROKER),
    _total("connects", "broker_connects", "connections", "Is it made anew?", _OF_BROKER),
    _total("disconnects", "broker_disconnects", "connections", "Is it lost?", _OF_BROKER),
)
"""Of each broker."""

BROKER_UP = _now("state", "broker_up", "1 or 0", "Is it connected, as heard lately?", _OF_BROKER)
BROKER_WINDOWS = (
    _since("rtt", "broker_rtt", "How long does an answer take?", MICRO, _OF_BROKER, "of"),
    _since(
        "int_latency",
        "broker_queue_latency",
        "How long does a record wait in the client before it is in a request?",
        MICRO,
        *(_OF_BROKER, "of"),
    ),
    _since(
        "outbuf_latency",
        "broker_send_latency",
        "How long does a request wait before it is sent?",
        MICRO,
        *(_OF_BROKER, "of"),
    ),
    _since("throttle", "broker_throttle", "Does a quota hold us back?", MILLI, _OF_BROKER, "of"),
)
"""Of each broker: durations of the last interval."""

PARTITION = (
    _now("fetchq_cnt", "partition_fetched_messages", "messages", "What waits here?", "partition"),
    _now("fetchq_size", "partition_fetched_bytes", "bytes", "How large is it?", "partition"),
    _now("lo_offset", "partition_first_offset", "offset", "What did retention leave?", "partition"),
    _now("hi_offset", "partition_high_watermark", "offset", "Where is its end?", "partition"),
    _now(
        "ls_offset",
        "partition_last_stable_offset",
        "offset",
        "Does an open transaction in the source hold readers back?",
        "partition",
    ),
    _now("leader", "partition_leader", "broker id", "Who leads it?", "partition"),
    _total("rxmsgs", "partition_received_messages", "messages", "What is fetched?", "partition"),
)
"""Of each assigned partition of the source topic."""
FETCHING = _now("fetch_state", "partition_fetching", "1 or 0", "Is it being read?", "partition")

BATCHES = (
    _now("batchsize", "batch_bytes", "bytes", "How large are the batches of records?", "of"),
    _now("batchcnt", "batch_messages", "messages", "How many records make a batch?", "of"),
)
"""Of the producer, over all topics: average and largest of the last interval."""

GROUP = (
    _since("stateage", "group_state", "How long is it in that state?", MILLI),
    _since("rebalance_age", "group_rebalance_age", "How long ago was a rebalance?", MILLI),
    _total("rebalance_cnt", "group_rebalances", "rebalances", "How often did the group move?"),
    _now("assignment_size", "group_assignment", "partitions", "What did the group give?"),
)
"""Of the consumer's membership."""
GROUP_UP = _now("state", "group_up", "1 or 0", "Is the group's coordinator connected?")
GROUP_STEADY = _now("join_state", "group_steady", "1 or 0", "Is no rebalance under way?")

TRANSACTIONAL = (
    _since("txn_stateage", "transaction_state", "How long is it in that state?", MILLI),
    _since("idemp_stateage", "producer_state", "How long does the producer have its id?", MILLI),
    _now("producer_id", "producer_id", "id", "As what do the brokers know it?"),
    _now("producer_epoch", "producer_epoch", "epoch", "How often was that id taken over?"),
    _now("txn_may_enq", "transaction_open", "1 or 0", "Would it take records now?"),
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
    gauge("relay_kafka_statistics_seconds", "seconds", "How old are these?", "client"),
    *(shown.metric for shown in SHOWN),
)
"""All metrics of the clients."""
