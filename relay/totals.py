"""What a relay committed lately, as a log line that a person can follow."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relay.forming import Formed

log = logging.getLogger(__name__)


class Totals:
    """What was committed lately, for a log line a person can follow."""

    EVERY_SECONDS = 5.0

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._transactions = self._blocks = self._rows = self._dead = 0

    def add(self, formed: Formed) -> None:
        """Count one sealed buffer."""
        self._blocks += bool(formed.chunks)
        self._rows += formed.rows
        self._dead += len(formed.dead)

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
        log.info("committed", extra=counts)
        self._since = time.monotonic()
        self._transactions = self._blocks = self._rows = self._dead = 0
