"""The loader without Spark, whose start costs seconds: the same parts, in this process.

What Spark does is done by hand: micro-batches, and a checkpoint in Spark's form.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from confluent_kafka import TopicPartition

from loader.blocks.attempt import Outcome
from loader.blocks.worker import Worker
from loader.journal import startup
from loader.journal.checkpoint import Checkpoint
from loader.journal.source import JOURNAL, JournalReader
from loader.metrics.observer import NOTHING
from loader.spark.known_blocks import BatchBlocks, KnownBlocks
from loader.spark.micro_batch import Settling
from loader.spark.set_aside import SetAside
from relay import names
from relay.config import kafka_clients
from relay.config.settings import Settings
from relay.errors import Unavailable
from relay.kafka.partition_reader import PartitionReader
from relay.records_pb2 import Block
from tests.broker.pipeline import wait_until
from tests.loader.blocks import Journal


class SealedRow(NamedTuple):
    partition: int
    offset: int
    block: bytes | None


@dataclass
class Unsparked:
    """A loader of a journal; each run is another process, as far as anybody can tell."""

    journal: Journal
    said: list[str] = field(default_factory=list)

    def run(self, *, lost: bool = False, settings: Settings | None = None) -> list[str]:
        """Loads what is sealed now; gives what was said, and the reasons of parked blocks."""
        return load(settings or self.journal.settings(), lost=lost)


def load(settings: Settings, *, lost: bool = False) -> list[str]:
    """As `loader run --once`; gives what was said."""
    run = Run(settings, lost=lost)
    try:
        while run.batch():
            pass
        run.finish()
    finally:
        run.close()
    return run.said


class Run:
    """From start to end of the process."""

    def __init__(self, settings: Settings, *, lost: bool = False) -> None:
        self.said: list[str] = []
        self._directory = Path(settings.loader.checkpoint)
        ledger = startup.ledger_of(settings, make=True)
        start = startup.begin(
            settings,
            ledger,
            Checkpoint(str(self._directory)),
            lost=lost,
            tell=self._say,
        )
        self._settings, self._reader = settings, JournalReader(start)
        self.seal_end()
        asides = SetAside(settings, ledger, self._say)
        using = settings, ledger, self._say, NOTHING, asides
        self._settling, self._asides = Settling(*using, threading.Event()), asides
        self._settling.begin(start)
        self._worker = Worker(settings)
        self._number, self._offsets = self._checkpointed()

    @property
    def known(self) -> KnownBlocks:
        return self._settling._known

    def close(self) -> None:
        self._worker.close()

    def finish(self) -> None:
        """What a run with --once does when all that was sealed is settled."""
        self._settling.end()
        self._asides.finish()

    def _say(self, text: str, **_: Any) -> None:
        if not text.startswith("batch "):
            self.said.append(text)

    def seal_end(self) -> None:
        """As a run that is not told to end: what was sealed meanwhile comes, too.

        A transaction is committed before its markers are in the log: until then nobody sees it.
        """
        config = kafka_clients.reader(self._settings.kafka)
        topic = names.journal_topic(self._settings.app)
        uncommitted = PartitionReader({**config, "isolation.level": "read_uncommitted"})

        def visible() -> bool:
            ends = {int(p): end for p, end in self._reader.ends().items() if p != JOURNAL}
            places = {p: TopicPartition(topic, p) for p in ends}
            highs = {p: uncommitted.get_watermark_offsets(places[p], timeout=30) for p in ends}
            return all(ends[p] >= high for p, (_, high) in highs.items())

        wait_until(visible, "what was committed")
        uncommitted.close()
        self._reader.prepareForTriggerAvailableNow()

    def look(self) -> BatchBlocks:
        """Of the next micro-batch, what the ledger knows; nothing is done."""
        rows = [SealedRow(*row) for row in self._reader.read(self._offsets)[0]]
        return self.known.look(rows)

    def batch(self) -> bool:
        """One micro-batch; whether there was one."""
        found, end = self._reader.read(self._offsets)
        if end == self._offsets:
            return False
        rows = [SealedRow(*row) for row in found]
        self._write("offsets", "v1\n{}\n" + json.dumps(end))
        with mock.patch("loader.spark.micro_batch.attempt", self._attempt):
            self._settling.settle(None, rows)  # type: ignore[arg-type] # Spark's part is ours
        self._write("commits", 'v1\n{"nextBatchWatermarkMs":0}')
        self._number, self._offsets = self._number + 1, end
        return True

    def _attempt(
        self, _: object, __: Settings, blocks: Collection[Block], new: Collection[str], *rest: int
    ) -> list[Outcome]:
        _beside, until = rest
        try:
            return self._worker.load(list(blocks), new, until=until)
        except Unavailable as error:
            return [Outcome(block.id, "retry", block.rows, error.message) for block in blocks]

    def _checkpointed(self) -> tuple[int, dict[str, Any]]:
        done = [int(one.name) for one in (self._directory / "commits").glob("*")]
        if not done:
            return 0, self._reader.initialOffset()
        text = (self._directory / "offsets" / str(max(done))).read_text("utf-8")
        return max(done) + 1, json.loads(text.splitlines()[-1])

    def _write(self, log: str, text: str) -> None:
        (self._directory / log).mkdir(parents=True, exist_ok=True)
        (self._directory / log / str(self._number)).write_text(text, encoding="utf-8")
