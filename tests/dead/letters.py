"""Dead letters for tests: written straight into the topic, and what a replay left, read back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from relay import names
from relay.blocks.dead_letter import DeadLetter, Origin, RecordPlace, headers_of
from relay.config import settings_file
from relay.kafka.topics import Topics
from relay.schema.dead_reason import DeadKind, DeadReason
from tests.broker.pipeline import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.broker.pipeline import Pipeline

TABLE = "shop.orders"


def letter(
    offset: int = 0,
    table: str = TABLE,
    reason: str | DeadReason = "row 1: no",
    when_ms: int = 1_000,
    origin: Origin | None = None,
    **other: object,
) -> DeadLetter:
    """One at place 0:offset, of source message 1:offset + 100."""
    kept = Origin(None, [("table", table.encode())]) if origin is None else origin
    fields = {
        "place": RecordPlace(0, offset),
        "when_ms": when_ms,
        "value": b"v%d" % offset,
        "source_topic": "rows",
        "source": RecordPlace(1, offset + 100),
        "table": table,
        "reason": DeadReason(DeadKind.DOES_NOT_FIT, reason) if isinstance(reason, str) else reason,
        "origin": kept,
    }
    return DeadLetter(**{**fields, **other})  # type: ignore[arg-type]


def write(
    pipeline: Pipeline, count: int, value_of: Callable[[int], bytes] = lambda n: b"message %d" % n
) -> list[bytes]:
    """So many dead letters in the app's topic; the values of their messages."""
    Topics(settings_file.load(pipeline.config())).ensure_own()
    producer = Producer({"bootstrap.servers": pipeline.bootstrap, "acks": "all"})
    values = [value_of(number) for number in range(count)]
    for number, value in enumerate(values):
        source = RecordPlace(number % PARTITIONS, number)
        origin = Origin(b"k%d" % number, [("trace", b"t"), ("table", TABLE.encode())])
        reason = DeadReason(DeadKind.DOES_NOT_FIT, "row 1: no")
        headers = headers_of(pipeline.source, source, TABLE, reason, origin)
        topic = names.dead_topic(pipeline.app)
        while True:
            try:
                producer.produce(topic, value, partition=source.partition, headers=headers)
            except BufferError:
                producer.poll(0.1)
            else:
                break
    assert producer.flush(60) == 0
    return values


def in_source(pipeline: Pipeline) -> Counter[bytes]:
    """How often each value is visible in the source topic."""
    read = pipeline.read(pipeline.source, PARTITIONS)
    return Counter(value or b"" for records in read.values() for _, value, _ in records)


def marked(pipeline: Pipeline) -> int:
    """Visible marks."""
    return len(pipeline.read(names.replayed_topic(pipeline.app), 1)[0])


class Command:
    """`relay dead ...` as a process of its own; ended with the context."""

    def __init__(
        self,
        pipeline: Pipeline,
        *arguments: str,
        failpoint: str = "",
        without: str = "",
        config: Path | None = None,
    ) -> None:
        program: list[str | Path] = [Path(sys.executable).parent / "relay"]
        if without:
            program = [sys.executable, "-m", "tests.dead.unguarded", without]
        self._process = subprocess.Popen(
            [*program, "dead", *arguments, "--config", config or pipeline.config()],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "RELAY_FAILPOINT": failpoint},
            text=True,
        )
        self.process = self._process

    def end(self, status: int) -> str:
        """Its output, once it has ended with this status."""
        try:
            output, _ = self._process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            output, _ = self._process.communicate()
            raise AssertionError(f"did not end: {output}") from None
        assert self._process.returncode == status, output
        return output
