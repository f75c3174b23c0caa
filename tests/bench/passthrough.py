"""The ceiling of what a Python process can move through librdkafka: no decoding, no blocks.

Receives a source topic, writes the bare values to one output topic: no header read, no table.
Exactly once (in transactions with their offsets), or at least once (the offsets are committed when
the output is acknowledged: what is between the two is copied again after a crash). A process of
its own, started by tests.bench.contenders; ends on SIGTERM.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from confluent_kafka import Consumer, Message, Producer

_ANSWER_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Order:
    """What to copy, as one JSON argument.

    Attributes:
        commit_seconds: from the first message after a commit to the next commit.
        exactly_once: in transactions; else at least once.
    """

    bootstrap: str
    source: str
    group: str
    output: str
    commit_seconds: float
    exactly_once: bool

    def argument(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))


def _delivered(problem: object, _message: object) -> None:
    if problem is not None:
        sys.exit(f"not delivered: {problem}")


_AT_LEAST_ONCE = {"on_delivery": _delivered, "delivery.report.only.error": True}
"""In a transaction the commit would say so."""


def main(order: Order) -> None:
    """Copies until ended."""
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: ended.append(number))
    consumer = Consumer({
        "bootstrap.servers": order.bootstrap,
        "group.id": order.group,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "partition.assignment.strategy": "range",
        "queued.max.messages.kbytes": 262_144,
        "queued.min.messages": 1_000_000,
        "fetch.wait.max.ms": 20,
    })  # fmt: skip
    producer = Producer({
        "bootstrap.servers": order.bootstrap,
        "linger.ms": 20,
        "batch.size": 1_000_000,
        "queue.buffering.max.messages": 2_000_000,
        "queue.buffering.max.kbytes": 1_048_576,
        **({"transactional.id": order.group} if order.exactly_once else _AT_LEAST_ONCE),
    })  # fmt: skip
    if order.exactly_once:
        producer.init_transactions(_ANSWER_SECONDS)
    consumer.subscribe([order.source])
    while not ended:
        _interval(order, consumer, producer, ended)
    consumer.close()


def _interval(order: Order, consumer: Consumer, producer: Producer, ended: list[int]) -> None:
    begun = 0.0
    while not ended and (not begun or time.monotonic() < begun + order.commit_seconds):
        batch = consumer.consume(5000, 0.05)
        if not batch:
            continue
        if not begun:
            begun = time.monotonic()
            if order.exactly_once:
                producer.begin_transaction()
        _copy(producer, order.output, batch)
    if begun:
        _commit(order, consumer, producer)


def _commit(order: Order, consumer: Consumer, producer: Producer) -> None:
    positions: Any = [p for p in consumer.position(consumer.assignment()) if p.offset >= 0]
    if order.exactly_once:
        group = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction(positions, group, _ANSWER_SECONDS)
        producer.commit_transaction(_ANSWER_SECONDS)
        return
    if left := producer.flush(_ANSWER_SECONDS):
        sys.exit(f"{left} records not acknowledged within {_ANSWER_SECONDS:g} s")
    consumer.commit(offsets=positions, asynchronous=False)


def _copy(producer: Producer, output: str, batch: list[Message]) -> None:
    # Grouped, because a batch with one partition for all is the client's cheapest call.
    values: dict[int, list[dict[str, bytes | None]]] = {}
    for message in batch:
        problem = message.error()
        if problem is not None:
            sys.exit(f"cannot read: {problem}")
        partition = message.partition()
        assert partition is not None, "a message that was read has a partition"
        values.setdefault(partition, []).append({"value": message.value()})
    for partition, records in values.items():
        queued = producer.produce_batch(output, records, partition=partition)
        if queued != len(records):
            sys.exit(f"queue full: {queued} of {len(records)} taken")
    producer.poll(0)


if __name__ == "__main__":
    main(Order(**json.loads(sys.argv[1])))
