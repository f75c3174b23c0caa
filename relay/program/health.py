"""Judges whether a relay is alive and ready. Pure: facts in, checks out.

**Alive** means that a restart would not help. So a relay is alive while it waits for a server,
through rebalances and through the restart of a broker; it is not while its loop, its transaction or
one partition among many is stuck. **Ready** means that it works now: it has its partitions, and
brokers answer. ClickHouse need not: a relay only reads columns there now and then, blocks flow on
without it, and a rollout must not wait for it.

All times are monotonic seconds of the clock that `now` was read from.
"""

# pure

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class RelayHealthLimits:
    """How long each may stand still, in seconds; relay.operate.metrics.endpoint says why."""

    poll_seconds: float
    transaction_seconds: float
    partition_seconds: float
    assignment_seconds: float = 900.0


@dataclass(frozen=True, slots=True)
class PartitionHealth:
    """One assigned partition.

    Attributes:
        waiting_since: since when messages wait to be read, none was, and the broker that has
            them is connected; None: none wait.
        overdue_seconds: how much longer its oldest buffer waits than its table's blocks may; they
            may longer while the relay is behind.
    """

    partition: int
    waiting_since: float | None = None
    overdue_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RelayHealth:
    """The present state of a relay.

    Attributes:
        beat_at: the last poll, or the last try of a server that was away.
        transaction_since: when the open transaction began; None: none is open.
        fenced: why, where another process has the identity; else empty.
        away: which server is away while the relay waits for it; else empty.
        assigned: the group has given this member its partitions, perhaps none.
        pending: partitions whose committed truth is still being read.
        pending_since: since when there are any; None: there are none.
        connected: whether any broker is connected; None: not known yet.
    """

    now: float
    beat_at: float
    transaction_since: float | None = None
    fenced: str = ""
    away: str = ""
    assigned: bool = False
    pending: int = 0
    pending_since: float | None = None
    connected: bool | None = None
    partitions: Sequence[PartitionHealth] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check; `why` has figures, also where it is well."""

    check: str
    ok: bool
    why: str


def liveness(facts: RelayHealth, limits: RelayHealthLimits) -> tuple[Check, ...]:
    """Check whether a restart would help; return every check, failed or not."""
    silent, limit = facts.now - facts.beat_at, limits.poll_seconds
    why = f"the last poll was {silent:.1f} s ago, limit {limit:g} s"
    return (
        Check("poll", silent <= limit, why),
        _transaction(facts, limits),
        _assignment(facts, limits),
        _partitions(facts, limits),
        Check("fenced", not facts.fenced, facts.fenced or "no other process has this identity"),
    )


def readiness(facts: RelayHealth) -> tuple[Check, ...]:
    """Check whether the process works now; return every check, failed or not."""
    if not facts.assigned:
        why = "the group has not assigned partitions to this relay yet"
    elif facts.pending:
        why = f"{facts.pending} partitions are being taken over"
    else:
        why = f"{len(facts.partitions)} partitions"
    kafka = facts.connected is not False and not facts.away
    return (
        Check("assigned", facts.assigned and not facts.pending, why),
        Check("servers", kafka, facts.away or ("answer" if kafka else "no broker is connected")),
    )


def _transaction(facts: RelayHealth, limits: RelayHealthLimits) -> Check:
    since, limit = facts.transaction_since, limits.transaction_seconds
    if since is None:
        return Check("transaction", ok=True, why="no transaction is open")
    seconds = facts.now - since
    why = f"the transaction has been open for {seconds:.1f} s, limit {limit:g} s"
    return Check("transaction", seconds <= limit, why)


def _assignment(facts: RelayHealth, limits: RelayHealthLimits) -> Check:
    """Check that partitions are taken over: while a broker answers, no outage explains it."""
    since = facts.pending_since
    if since is None:
        return Check("assignment", ok=True, why="all partitions are taken over")
    seconds, limit = facts.now - since, limits.assignment_seconds
    why = (
        f"{facts.pending} partitions have been in take-over for {seconds:.1f} s, limit {limit:g} s"
    )
    if facts.away:
        why += f"; {facts.away}"
    return Check("assignment", facts.connected is not True or seconds <= limit, why)


def _partitions(facts: RelayHealth, limits: RelayHealthLimits) -> Check:
    """Check each partition: the sum over all of them would hide one that stands still."""
    if facts.away:
        return Check("partitions", ok=True, why="not judged while a server does not answer")
    limit = limits.partition_seconds
    unread = [
        p.partition
        for p in facts.partitions
        if p.waiting_since is not None and facts.now - p.waiting_since > limit
    ]
    unsealed = [p.partition for p in facts.partitions if p.overdue_seconds > limit]
    reasons = []
    if unread:
        reasons.append(f"messages wait in {_listed(unread)} and none was polled for {limit:g} s")
    if unsealed:
        past = f"{limit:g} s past the time when they should be in blocks"
        reasons.append(f"buffers of {_listed(unsealed)} are {past}")
    progress = f"all {len(facts.partitions)} partitions make progress"
    return Check("partitions", not reasons, "; ".join(reasons) or progress)


def _listed(partitions: Sequence[int]) -> str:
    shown = ", ".join(map(str, sorted(partitions)[:10]))
    return shown if len(partitions) <= 10 else f"{shown} and {len(partitions) - 10} more"


def answer(checks: Sequence[Check]) -> tuple[int, str, bytes]:
    """Answer by HTTP: 200, or 503 if a check failed; JSON with the failed checks first."""
    failed = [check.check for check in checks if not check.ok]
    body = {"ok": not failed, "failed": failed, "checks": [asdict(check) for check in checks]}
    text = json.dumps(body, indent=1, ensure_ascii=False)
    return (503 if failed else 200), "application/json", f"{text}\n".encode()
