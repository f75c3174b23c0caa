"""The ceiling of what a Python process can move through librdkafka exactly once.

Receives a source topic, writes the bare values to one output topic in transactions
with their offsets: no header read, no table, no decoding. A process of its own,
started by tests.bench.contenders; ends on SIGTERM.
"""

from __future__ import annotations

import signal
import sys
import time

from confluent_kafka import Consumer, Message, Producer

_COMMIT_SECONDS = 0.25  # as the relay's default
_ANSWER_SECONDS = 30.0


def main(bootstrap: str, source: str, group: str, output: str) -> None:
    """Copies until ended."""
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: ended.append(number))
    consumer = Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": group,
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
        "bootstrap.servers": bootstrap,
        "transactional.id": group,
        "linger.ms": 20,
        "batch.size": 1_000_000,
        "queue.buffering.max.messages": 2_000_000,
        "queue.buffering.max.kbytes": 1_048_576,
    })  # fmt: skip
    producer.init_transactions(_ANSWER_SECONDS)
    consumer.subscribe([source])
    while not ended:
        _transaction(consumer, producer, output, ended)
    consumer.close()


def _transaction(consumer: Consumer, producer: Producer, output: str, ended: list[int]) -> None:
    begun = 0.0
    while not ended and (not begun or time.monotonic() < begun + _COMMIT_SECONDS):
        batch = consumer.consume(5000, 0.05)
        if not batch:
            continue
        if not begun:
            begun = time.monotonic()
            producer.begin_transaction()
        _copy(producer, output, batch)
    if begun:
        positions = [p for p in consumer.position(consumer.assignment()) if p.offset >= 0]
        group = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction(positions, group, _ANSWER_SECONDS)
        producer.commit_transaction(_ANSWER_SECONDS)


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
    main(*sys.argv[1:])
