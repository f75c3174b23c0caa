"""Do the group's members have all partitions of the source between them?

Receives the settings, gives the partitions that nobody has. A static member that starts again
within its session gets what it had before, without a rebalance, and has then seen the source as it
is now: partitions that were added while the group's leader was away would stay with nobody until
something else makes the group rebalance.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from confluent_kafka import ConsumerGroupState, KafkaException

from relay import names
from relay.admin import Admin
from relay.errors import Refused, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from relay.settings import Settings

FIRST_SECONDS = 2.0
"""After an assignment, for the others to have theirs."""
AGAIN_SECONDS = 30.0
"""After a look that found some, or got no answer."""
_REQUEST_SECONDS = 5.0  # nobody polls meanwhile

log = logging.getLogger(__name__)


def left_over(partitions: int, assigned: Iterable[Iterable[int]]) -> frozenset[int]:
    """Partitions that none of the members has.

    Args:
        partitions: how many the source has.
        assigned: to each member.
    """
    return frozenset(range(partitions)).difference(*assigned)


class Coverage:
    """Of the group, looked at once after each assignment, and again where some were left over."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        self._group = names.group_id(settings.app)
        self._admin: Admin | None = None
        self._at: float | None = None
        self._pause = FIRST_SECONDS

    def rebalanced(self) -> None:
        """The group gave an assignment."""
        self._at = self._clock() + self._pause

    def left_over(self) -> frozenset[int]:
        """Partitions that nobody has; none where it is not time to look, or nobody answers."""
        if self._at is None or self._clock() < self._at:
            return frozenset()
        try:
            found = self._asked()
        except (Unavailable, Refused, KafkaException) as error:
            log.warning("who has which source partition cannot be asked", extra={"why": str(error)})
            found = None
        self._pause = AGAIN_SECONDS if found else FIRST_SECONDS
        self._at = None if found == frozenset() else self._clock() + AGAIN_SECONDS
        return found or frozenset()

    def _asked(self) -> frozenset[int] | None:
        """None while the group rebalances."""
        if self._admin is None:
            self._admin = Admin(self._settings.source_kafka)
        client, topic = self._admin.client, self._settings.source.topic
        asked = client.describe_consumer_groups([self._group], request_timeout=_REQUEST_SECONDS)
        grant = f"grant Describe on group {self._group} to the user of kafka.client"
        group = self._admin.answer(f"describe group {self._group}", asked[self._group], grant)
        if group.state is not ConsumerGroupState.STABLE:
            return None
        source = client.list_topics(topic, timeout=_REQUEST_SECONDS).topics[topic]
        return left_over(
            len(source.partitions),
            ([p.partition for p in m.assignment.topic_partitions] for m in group.members),
        )
