"""What a relay's log says of its transactions: which one a line concerns, what was committed.

Receives the effects of a relay before and after they are performed; every line that its
thread writes in between, librdkafka's included, carries what is said here. Counts what each
transaction committed, and writes the sums as a line that a person can follow.
"""

from __future__ import annotations

import logging
import time
from collections import Counter

from relay import names
from relay.core import effects as ef
from relay.log import about
from relay.process.seal_results import Sent

log = logging.getLogger(__name__)

_SHOWN = 10
"""Block ids on a line; their number is there in any case."""


class LogContext:
    """Add the transaction and its blocks to one relay's log lines.

    Args:
        app, member: give its transactional id, after which its transactions are named; they are
            counted from its start.
    """

    def __init__(self, app: str, member: str) -> None:
        self._app, self._transactional_id = app, names.transactional_id(app, member)
        self._begun = 0

    def before(self, effect: ef.Effect) -> None:
        """Note an effect that is about to be performed."""
        match effect:
            case ef.Begin(_, partition):
                self._begun += 1
                if partition is not None:
                    self._transactional_id = names.partition_transactional_id(self._app, partition)
                about(transaction=self._name())
            case ef.Produce(seals):
                ids = [seal.block_id for seal in seals[:_SHOWN]]
                about(transaction=self._name(), sealing=len(seals), blocks=ids)

    @staticmethod
    def after(effect: ef.Effect) -> None:
        """Note an effect that was performed, which may end the transaction."""
        if isinstance(effect, ef.Commit | ef.Abort | ef.Replace):
            about()

    def _name(self) -> str:
        return f"{self._transactional_id}/{self._begun}"


class CommitTotals:
    """What was committed lately, for a log line a person can follow."""

    EVERY_SECONDS = 5.0

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._transactions = self._blocks = self._rows = self._dead = 0
        self._unknown: Counter[str] = Counter()

    def add(self, sent: Sent) -> None:
        """Count what one buffer became."""
        table, facts = sent.seal.table, sent.facts
        self._unknown.update({f"{table} field {n}": m for n, m in facts.unknown.items()})
        self._blocks += bool(facts.chunks)
        self._rows += facts.rows
        self._dead += sum(facts.dead_groups.values())

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
            named = ", ".join(f"{where}: {count}" for where, count in sorted(self._unknown.items()))
            log.warning("messages have fields that their table never had", extra={"held": named})
            self._unknown.clear()
        self._since = time.monotonic()
        self._transactions = self._blocks = self._rows = self._dead = 0
