"""Whether a relay that has seen nothing but dead letters should stop: an unsuitable topic; pure.

Receives what each transaction's messages became, gives the moment to ask whether the app ever had
a good message, and the words to stop with. Nothing stops for a neighbour: one good message, in
this process or ever before, and the brake is off for good.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from relay.errors import ConfigError, ErrorPage
from relay.program.plural import several
from relay.schema.dead_reason import DeadKind, DeadReason

ENOUGH = 100
"""Messages, all of them dead, before anybody asks. A topic in another format gives many times as
many in its first poll. Fewer may be one producer's that happened to come first; the first of each
kind is logged, and all are kept whole and can be replayed."""
_KINDS = 5
"""Kinds of dead letters that the error names, each by the reason of its first one."""
_MOST = 1_000
"""Kinds that are counted."""


class Brake:
    """Decide whether one relay process should stop.

    Args:
        on: False: somebody said that a source may begin with nothing but dead letters.
    """

    def __init__(self, *, on: bool) -> None:
        self._on = on
        self._committed = self._now = 0
        self._kinds: Counter[tuple[str, DeadKind, str]] = Counter()
        self._examples: dict[tuple[str, DeadKind, str], str] = {}

    def begun(self) -> None:
        """Begin a transaction; messages of an aborted one will come again."""
        self._now = 0

    def add(self, good: int, table: str, dead: Iterable[tuple[DeadReason, int]]) -> None:
        """Count some of a table's messages: those that could become rows, the others by reason."""
        if good:
            self.release()
        if not self._on:
            return
        for reason, count in dead:
            self._now += count
            kind = (table, *reason.group)
            if kind in self._kinds or len(self._kinds) < _MOST:
                self._kinds[kind] += count
                self._examples.setdefault(kind, reason.text)

    def committed(self) -> None:
        """Note that the transaction is committed."""
        self._committed, self._now = self._committed + self._now, 0

    @property
    def due(self) -> bool:
        """Return whether to ask now if the app ever had a good message."""
        return self._on and self._now > 0 and self._committed + self._now >= ENOUGH

    def release(self) -> None:
        """Release the brake for good: the app has, or had, a good message."""
        self._on = False
        self._kinds.clear()
        self._examples.clear()

    def error(self, topic: str) -> ConfigError:
        """Return the error that stops the relay."""
        seen = self._committed + self._now
        commonest = self._kinds.most_common(_KINDS)
        kinds = [f"{self._examples[kind]} ({count:,})" for kind, count in commonest]
        more = len(self._kinds) - _KINDS
        rest = f"; and {several(more, 'more kind')}" if more > 0 else ""
        return ConfigError(
            f"none of the first {seen:,} messages of topic {topic} can become rows, and no "
            f"message of this app ever could: {'; '.join(kinds)}{rest}",
            "check that source.topic names the right topic: `relay doctor CONFIG --sample 100` "
            "shows what its messages look like. If the first messages may all become dead "
            'letters, set source.all_dead = "continue"',
            page=ErrorPage.WRONG_TOPIC,
        )
