"""`relay` with one guard of the replay taken away, for negative controls.

python -m tests.dead.unguarded GUARD dead replay ...
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from relay import cli, names
from relay.operate.dead.replay import Replay

if TYPE_CHECKING:
    from relay.kafka.transactional_producer import TransactionalProducer


def one_transaction() -> None:
    """The messages are committed before their marks are written."""
    write = Replay._write

    def split(self: Replay, batch: Any) -> Any:
        producer: TransactionalProducer = self._producer
        flush = producer.flush
        flushed = 0

        def flush_and_commit() -> None:
            nonlocal flushed
            flush()
            flushed += 1
            if flushed == 1:
                producer.commit()
                producer.begin("no consumer group")

        producer.flush = flush_and_commit  # type: ignore[method-assign]
        try:
            return write(self, batch)
        finally:
            producer.flush = flush  # type: ignore[method-assign]

    Replay._write = split  # type: ignore[method-assign]


def one_identity() -> None:
    """Each replay has a transactional id of its own."""
    names.replay_transactional_id = lambda app: f"{app}.dead-replay.{os.getpid()}"


if __name__ == "__main__":
    globals()[sys.argv.pop(1)]()
    cli.program()
