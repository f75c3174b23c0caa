"""The peer in Python: Quix Streams routes one topic of many tables to a topic per table, by header.

Receives a JSON argument (tests.bench.quix), copies key, value and headers as bytes and never
decodes a row. Its environment has Quix Streams and nothing of this project. It ends on SIGTERM,
and with status 1 when one of its processes has ended by itself.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
import sys
from multiprocessing.connection import wait
from typing import Any

# As the other contenders have them: nothing else was tried.
_COMMIT_SECONDS = 0.5
_CONSUMER = {
    "partition.assignment.strategy": "range",
    "fetch.queue.backoff.ms": 1,
    "fetch.wait.max.ms": 20,
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 262_144,
}
_PRODUCER = {
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 2_000_000,
    "queue.buffering.max.kbytes": 1_048_576,
}


def route(order: dict[str, Any]) -> None:
    """Routes until ended."""
    from quixstreams import Application  # noqa: PLC0415 - the parent only starts processes

    app = Application(
        broker_address=order["bootstrap"],
        consumer_group=order["group"],
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=_COMMIT_SECONDS,
        auto_create_topics=False,
        state_dir=order["state"],
        consumer_extra_config=_CONSUMER,
        producer_extra_config=_PRODUCER,
        loglevel="WARNING",
    )
    read = {"key_deserializer": "bytes", "value_deserializer": "bytes"}
    write = {"key_serializer": "bytes", "value_serializer": "bytes"}
    outputs = {
        table.encode(): app.topic(topic, **write) for table, topic in order["outputs"].items()
    }

    def chosen(
        _value: bytes, _key: bytes, _timestamp: int, headers: list[tuple[str, bytes]]
    ) -> Any:
        return outputs[next(value for name, value in headers if name == "table")]

    app.dataframe(app.topic(order["source"], **read)).to_topic(chosen)
    app.run()


def main(order: dict[str, Any]) -> int:
    """Runs the processes until SIGTERM, or until one of them ends."""
    asked: list[int] = []
    children: list[Any] = []

    def end(number: int, _frame: object) -> None:
        asked.append(number)
        for child in children:
            child.terminate()

    signal.signal(signal.SIGTERM, end)
    for _ in range(order["processes"]):
        children.append(multiprocessing.get_context("spawn").Process(target=route, args=(order,)))
        children[-1].start()
    wait([child.sentinel for child in children])
    for child in children:
        child.terminate()
        child.join()
    return 0 if asked else 1


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
