"""Which partitions the group has not given out: to nobody, or not yet to this member.

Receives when the group was asked and when it answered, gives the partitions that nobody has, and
logs why a member waits for its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from relay import names
from relay.config import kafka_clients
from relay.config.settings import Settings
from relay.kafka.group_queries import Groups

FIRST_SECONDS = 2.0
"""After an assignment, for the others to have theirs."""
AGAIN_SECONDS = 30.0
"""After a look that found some, or got no answer."""
JOIN_SECONDS = 5.0
"""A group that forms waits three (group.initial.rebalance.delay.ms), and gives out in moments."""
_REQUEST_SECONDS = 5.0  # nobody polls meanwhile

log = logging.getLogger(__name__)


def left_over(partitions: int, assigned: Iterable[Iterable[int]]) -> frozenset[int]:
    """Return which of so many source partitions are assigned to no member."""
    return frozenset(range(partitions)).difference(*assigned)


class Coverage:
    """Look for unassigned partitions after each assignment, and again where some were left over.

    A static member that starts again within its session gets what it had before, without a
    rebalance, and has then seen the source as it is now: partitions that were added while the
    group's leader was away would stay with nobody until something else makes the group rebalance.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        self._group = names.group_id(settings.app)
        # A look while brokers come back may end the process that asks.
        self._groups = Groups(settings.source_kafka, _REQUEST_SECONDS, lasting=True)
        self._at: float | None = None
        self._pause = FIRST_SECONDS

    def rebalanced(self) -> None:
        """Note that the group gave an assignment."""
        self._at = self._clock() + self._pause

    def left_over(self, owned: Collection[int], partitions: int) -> frozenset[int]:
        """Return the partitions that nobody has; none if no look is due or no broker answers.

        `partitions`: how many the source had when this member took over those that it owns.
        """
        if self._at is None or self._clock() < self._at:
            return frozenset()
        has_all = owned and not left_over(partitions, [owned])
        try:
            found = frozenset() if has_all else self._ask_group()  # which starts a process
        except KafkaException as error:
            log.warning(
                "cannot ask the group which relay has which source partition",
                extra={"why": str(error)},
            )
            found = None
        self._pause = AGAIN_SECONDS if found else FIRST_SECONDS
        self._at = None if found == frozenset() else self._clock() + AGAIN_SECONDS
        return found or frozenset()

    def _ask_group(self) -> frozenset[int] | None:
        """Return the partitions that no member has; None while the group rebalances."""
        try:
            group = self._groups.describe(self._group)
        finally:
            self._groups.close()  # asked seldom, and a child process takes memory
        if group.state != "stable":
            return None
        topic = self._settings.source.topic
        client = AdminClient(kafka_clients.admin(self._settings.source_kafka))
        source = client.list_topics(topic, timeout=_REQUEST_SECONDS).topics[topic]
        owned = ([p for name, p in member.partitions if name == topic] for member in group.members)
        return left_over(len(source.partitions), owned)


class JoinWarning:
    """Log, once, why a member that joined the group has had no assignment for JOIN_SECONDS."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._session, self._clock = settings.relay.session_timeout_seconds, clock
        self._since: float | None = None

    def joined(self) -> None:
        """Note that the group was asked."""
        self._since = self._clock()

    def assigned(self) -> None:
        """Note that the group has answered."""
        self._since = None

    def look(self) -> None:
        """Log, once, that the group has not answered for a while."""
        if self._since is None or self._clock() - self._since < JOIN_SECONDS:
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
