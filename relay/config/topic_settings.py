"""Settings of the topics that relays create; pure.

Exactly once depends on each of them. What a cluster sets by default is no promise: it may compact
every topic, or let a leader acknowledge a record that nobody else has.
"""

# pure

from __future__ import annotations

SAFE_COPIES = 3
SAFE_IN_SYNC = 2
IN_SYNC = "min.insync.replicas"

BROKERS_DEFAULT = -1
"""As a number of copies: what the brokers have by default (KIP-464)."""

BY_KEY = {"cleanup.policy": "compact"}
"""Of topics of which the last record of a key is kept for ever."""
BY_TIME = {"cleanup.policy": "delete"}
"""Of all others. The chunks of a block share a key: compacted, all but one were gone."""
APPENDED = "LogAppendTime"
BY_BROKERS_CLOCK = {"message.timestamp.type": APPENDED}
"""Of all topics that relays write. By a relay's clock that is behind, retention deletes blocks
before they are loaded; of one that is an hour ahead, Kafka 4 refuses each record (KIP-1030)."""


def copies(configured: int | None, source: int) -> int:
    """Return how many copies a new topic gets; 0 where neither number is known.

    By default as many as the source topic has: rows have to be as safe as in it.
    """
    return configured or source


def of_copies(replication: int) -> dict[str, str]:
    """Return what a topic of so many copies needs, so that a broker may be lost.

    By Kafka's default of 1 the leader alone acknowledges, and rows go with it that count as read.
    """
    return {IN_SYNC: str(SAFE_IN_SYNC)} if replication >= SAFE_COPIES else {}
