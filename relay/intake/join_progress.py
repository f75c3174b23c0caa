"""Logs why a member that joined the group has no assignment yet.

Receives when the member joined and when the group gave it something, perhaps nothing; writes one
line between the two.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.config.settings import Settings

SECONDS = 5.0
"""A group that forms waits three (group.initial.rebalance.delay.ms), and gives out in moments."""

log = logging.getLogger(__name__)


class Joining:
    """Of one member.

    Args:
        settings: of the app.
        clock: monotonic seconds.
        seconds: without an assignment until the member logs why.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
        seconds: float = SECONDS,
    ) -> None:
        self._session, self._clock = settings.relay.session_timeout_seconds, clock
        self._seconds = seconds
        self._since: float | None = None

    def joined(self) -> None:
        """Note that the group was asked."""
        self._since = self._clock()

    def assigned(self) -> None:
        """Note that the group has answered."""
        self._since = None

    def look(self) -> None:
        """Say, once, that it has not for a while."""
        if self._since is None or self._clock() - self._since < self._seconds:
            return
        self._since = None
        log.warning(
            "the relay waits for partitions from the consumer group",
            extra={
                "why": "the group waits until the session of members that left without notice "
                f"ends ({self._session:g} s), for instance because members were renamed; or "
                "one member is busy",
                "next": "wait; `relay status` shows the members",
            },
        )
