"""`python -m tests.bench.feed ORDER`: rows at a steady rate into a source topic.

Receives a file with an Order in JSON, writes until its seconds are over and the broker has all,
gives what it did as the last line of its output, a Fed in JSON. A process of its own, so that
what is measured and what feeds it do not share an interpreter.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tests.bench import rows
from tests.bench import source as sources
from tests.bench.figures import Figure
from tests.bench.rows import Shape

if TYPE_CHECKING:
    from relay.rows.row_codec import RowCodec

TICK_SECONDS = 0.05
"""Rows are made and sent so often: what a program that gathers a little does."""


@dataclass(frozen=True, slots=True)
class Order:
    """What to send.

    Attributes:
        rate: rows per second over all tables.
        per_message: rows in each message.
        seconds: how long.
        first: number of each table's first row, a multiple of `per_message`.
        delimited: each message begins with its length, as the Kafka engine wants it.
    """

    bootstrap: str
    topic: str
    shape: Shape
    partitions: int
    rate: float
    per_message: int
    seconds: float
    first: list[int] = field(default_factory=list)
    delimited: bool = False

    def written(self, file: Path) -> Path:
        """The file, which holds the order now."""
        file.write_text(json.dumps(asdict(self)))
        return file

    @classmethod
    def read(cls, file: Path) -> Order:
        """From a file that `written` wrote."""
        found = json.loads(file.read_text())
        return cls(**{**found, "shape": Shape(**found["shape"])})


@dataclass(frozen=True, slots=True)
class Fed:
    """What was sent, all of it acknowledged.

    Attributes:
        ends: number behind each table's last row.
        messages: sent in this run.
        seconds: from the first tick to the last.
        longest_tick_seconds: what was sent together was due within so long at most.
        cpu_seconds: of the whole process.
    """

    ends: list[int]
    messages: int
    seconds: float
    longest_tick_seconds: float
    cpu_seconds: float

    @classmethod
    def read(cls, log: Path) -> Fed:
        """From the output of a feed that has ended."""
        return cls(**json.loads(log.read_text().splitlines()[-1]))

    def figures(self) -> list[Figure]:
        """How steady it was, and what it cost."""
        return [
            Figure("the feed's longest tick", self.longest_tick_seconds, "s"),
            Figure("cores used by the feed", self.cpu_seconds / self.seconds, "cores"),
        ]


def due(order: Order, elapsed: float) -> list[int]:
    """Messages of each table that should have been sent so many seconds after the start."""
    sent = order.rate * min(elapsed, order.seconds) / order.per_message
    return [int(sent * weight) for weight in order.shape.weights]


def feed(order: Order) -> Fed:
    """Sends all that is ordered.

    Raises:
        Unavailable: the broker did not take it.
    """
    lost: list[str] = []
    producer = sources.make_producer(order.bootstrap, lost)
    headers = [sources.table_header(table) for table in order.shape.names]
    # The tables are alike: rows of one are written as rows of any.
    codec = rows.codec(order.shape.names[0], order.shape)
    first = order.first or [0] * len(headers)
    sent = [0] * len(headers)
    began = time.monotonic()
    longest = elapsed = 0.0
    while elapsed < order.seconds:
        before = elapsed
        time.sleep(max(0.0, began + before + TICK_SECONDS - time.monotonic()))  # the pace
        elapsed = time.monotonic() - began
        longest = max(longest, elapsed - before)
        wanted = due(order, elapsed)
        if wanted == sent:
            continue
        # All tables' together: made for each of eight alone, rows cost the feed twice as much.
        values = iter(_values(order, codec, first, sent, wanted))
        for table, header in enumerate(headers):
            while sent[table] < wanted[table]:
                # Another table begins with another partition: no tick fills one alone.
                partition = (sent[table] + table) % order.partitions
                value = next(values)
                value = rows.delimited(value) if order.delimited else value
                sources.produce(producer, order.topic, partition, value, header)
                sent[table] += 1
    sources.flush(producer, order.topic, lost)
    ends = [start + many * order.per_message for start, many in zip(first, sent, strict=True)]
    return Fed(ends, sum(sent), elapsed, longest, time.process_time())


def _values(
    order: Order, codec: RowCodec, first: list[int], sent: list[int], wanted: list[int]
) -> list[bytes]:
    """Messages from `sent` to `wanted` of each table, one table behind the other; made now."""
    size = order.per_message
    numbers = [
        np.arange(start + begin * size, start + end * size, dtype=np.int64)
        for start, begin, end in zip(first, sent, wanted, strict=True)
    ]
    now = time.time_ns() // 1_000_000
    made = rows.numbered_columns(np.concatenate(numbers), order.shape, now)
    return rows.values(codec, made, size)


if __name__ == "__main__":
    print(json.dumps(asdict(feed(Order.read(Path(sys.argv[1]))))))
