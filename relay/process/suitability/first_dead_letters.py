"""Logs the first dead letter of each table and kind of reason, so that somebody notices it.

Receives dead letters as they are formed, gives one WARNING for each table, kind of reason and
field since the relay's start, once its transaction is committed. The totals count later ones.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from relay.blocks.dead_letter import RecordPlace
from relay.schema.dead_reason import DeadKind, DeadReason

_Group = tuple[str, DeadKind, str]
"""Table, kind and field."""


log = logging.getLogger(__name__)

MOST = 1_000
"""Kinds that are remembered: a producer may invent tables without end."""
SHOWN = 1_000
"""Characters of a reason in the log."""


class FirstDeadLetters:
    """Log the first dead letters of one relay process, which reads `topic`."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._known: set[_Group] = set()
        self._new: dict[_Group, tuple[DeadReason, RecordPlace]] = {}
        self._full = False

    def begun(self) -> None:
        """Forget the letters of a transaction that was not committed."""
        self._new.clear()

    def add(self, table: str, letters: Iterable[tuple[RecordPlace, DeadReason]]) -> None:
        """Note a table's dead letters, each with its source place and reason."""
        for place, reason in letters:
            if self._full:
                return
            key = (table, *reason.group)
            if key not in self._known and len(self._known) + len(self._new) <= MOST:
                self._new.setdefault(key, (reason, place))

    def committed(self) -> None:
        """Log those that were new in the transaction."""
        for key, (reason, place) in self._new.items():
            if len(self._known) >= MOST:
                self._full = True
                log.warning(
                    "too many kinds of dead letters: the relay logs no further kinds",
                    extra={"kinds": MOST},
                )
                break
            self._known.add(key)
            extra = {
                "table": key[0] or "(none)",
                "kind": reason.kind.value,
                "reason": reason.text[:SHOWN],
                "topic": self._topic,
                "partition": place.partition,
                "offset": place.offset,
            }
            log.warning("the relay wrote the first dead letter of this kind", extra=extra)
        self._new.clear()
