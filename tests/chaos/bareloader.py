"""The loader without Spark: journal to ClickHouse through the product's own worker, in one
process that starts in a second, for campaigns that kill it hundreds of times.

python -m tests.chaos.bareloader CONFIG
"""

from __future__ import annotations

import random
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, TopicPartition

from loader.blocks.worker import Worker
from loader.clickhouse import client as clickhouse_client
from loader.clickhouse.ledger import Ledger
from loader.core.plan import settled
from relay import names
from relay.config import kafka_clients, settings_file
from relay.errors import RelayError, Unavailable
from relay.records_pb2 import Block, Commit

if TYPE_CHECKING:
    from relay.config.settings import Settings

AT_ONCE = 64
_PAUSE_SECONDS = 0.2
_LONGEST_SECONDS = 10.0
_LOOK_SECONDS = 5.0
"""Between two looks for partitions that were added to the journal."""


class Journal:
    """Sealed blocks, from the beginning of the journal; what is known costs one question."""

    def __init__(self, settings: Settings) -> None:
        self._topic = names.journal_topic(settings.app)
        self._reader = Consumer(kafka_clients.reader(settings.kafka))
        self._known: set[int] = set()
        self._looked_at = 0.0
        if why := self._look():
            raise Unavailable(f"{self._topic}: {why}", "start a relay")

    def some(self) -> list[Block]:
        if time.monotonic() - self._looked_at > _LOOK_SECONDS:
            self._look()
        messages = self._reader.consume(AT_ONCE, 0.1)
        values = [m.value() for m in messages if m.error() is None]
        return [block for value in values for block in Commit.FromString(value or b"").blocks]

    def _look(self) -> str:
        """Take the partitions that are new from their beginning; why it cannot be done."""
        self._looked_at = time.monotonic()
        try:
            known = self._reader.list_topics(self._topic, timeout=30).topics[self._topic]
        except KafkaException as error:
            return str(error)
        if known.error is not None:
            return str(known.error)
        new = known.partitions.keys() - self._known
        self._reader.incremental_assign([TopicPartition(self._topic, p, 0) for p in sorted(new)])
        self._known |= new
        return ""


def run(settings: Settings) -> None:
    """Until SIGTERM."""
    client = clickhouse_client.connect(settings.clickhouse, 60)
    ledger = Ledger(client, settings.loader.database, settings.app)
    ledger.ensure()
    journal, worker = Journal(settings), Worker(settings, isolates=True)
    open_: list[Block] = []
    pause = _PAUSE_SECONDS
    while True:
        open_ += journal.some()
        before = len(open_)
        if not open_:
            continue
        try:
            known = ledger.entries(open_)
            open_ = [b for b in open_ if settled(known.get(b.id, ())) is None]
            attempts = worker.load(open_)
            for why in sorted({o.reason for o in attempts if o.outcome == "retry"}):
                print(f"retry: {why}", file=sys.stderr, flush=True)
            outcomes = {o.block: o.outcome for o in attempts}
            open_ = [b for b in open_ if outcomes[b.id] == "retry"]
        except Unavailable as error:
            print(error.message, file=sys.stderr, flush=True)
        # As loader.spark.job: two loaders that keep step overtake each other's claims for ever.
        pause = _PAUSE_SECONDS if len(open_) < before else min(2 * pause, _LONGEST_SECONDS)
        if open_:
            time.sleep(pause * random.uniform(0.5, 1.5))


def main() -> int:
    """Ends with the product's exit statuses."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        run(settings_file.load(Path(sys.argv[1])))
    except RelayError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
