"""What a relay committed lately, as a log line that a person can follow."""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relay.process.seal_results import Sent

log = logging.getLogger(__name__)


class CommitTotals:
    """What was committed lately, for a log line a person can follow."""

    EVERY_SECONDS = 5.0

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._transactions = self._blocks = self._rows = self._dead = 0
        self._unknown: Counter[str] = Counter()

    def add(self, sent: Sent) -> None:
        """Count what one buffer became."""
        table = sent.seal.table
        self._unknown.update({f"{table} field {n}": held for n, held in sent.unknown.items()})
        self._blocks += bool(sent.chunks)
        self._rows += sent.rows
        self._dead += sent.dead

    def report(self) -> None:
        """Log and begin anew, if the last line is old enough; called after a commit."""
        self._transactions += 1
        seconds = time.monotonic() - self._since
        if seconds < self.EVERY_SECONDS:
            return
        counts = {
            "transactions": self._transactions,
            "blocks": self._blocks,
            "rows": self._rows,
            "rows_per_s": round(self._rows / seconds),
            "dead_letters": self._dead,
        }
        log.info("committed transactions", extra=counts)
        if self._unknown:
            named = ", ".join(f"{where}: {held}" for where, held in sorted(self._unknown.items()))
            log.warning("messages have fields that their table never had", extra={"held": named})
            self._unknown.clear()
        self._since = time.monotonic()
        self._transactions = self._blocks = self._rows = self._dead = 0
