"""What the relay's shell tells observers. This one receives every event and does nothing.

It is what a relay has without `--http`. Calls come once per poll, step, block or try, never
per message, and from the relay's own thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relay.blocks.form_block import BlockFacts
from relay.core.effects import Effect
from relay.core.events import Event
from relay.core.state import RelayState, Seal
from relay.errors import RelayError


class RelayObserver:
    """Every method: what just happened; none raises."""

    def settings(self, client: str) -> dict[str, Any]:
        """Return what a client ("consumer", "producer") is made with in addition."""
        del client
        return {}

    def polled(self, seconds: float, messages: int, size: int) -> None:
        """Note that a poll of the source topic has ended; `size` in bytes."""

    def stepped(
        self, before: RelayState, event: Event, after: RelayState, effects: Sequence[Effect]
    ) -> None:
        """Note that the core has taken a step; its effects are about to be performed."""

    def formed(self, seal: Seal, facts: BlockFacts, seconds: float) -> None:
        """Note that a sealed buffer has become chunks and dead letters."""

    def refreshed(self, seconds: float, changed: int, why: str) -> None:
        """Note that tables' columns were read: how many changed, or `why` they could not be."""

    def away(self, why: str) -> None:
        """Note that a server did not answer; it is tried again. Once per try."""

    def trouble(self, partition: int, name: str) -> None:
        """Note an error in the place of this partition's messages; it is tried again."""

    def ended(self, error: RelayError) -> None:
        """Note that the relay ends by itself."""


NOTHING = RelayObserver()
