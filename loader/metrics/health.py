"""Is the loader alive, and is it ready? Pure: facts in, checks of relay.program.health out.

Alive means that a restart would not help. While a server is away the loader waits, says so
and tries again: it is alive then, and not ready. All times are monotonic seconds.
"""

# pure

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from relay.program.health import Check


@dataclass(frozen=True, slots=True)
class LoaderHealthLimits:
    """How long each part of the loader may stand still, in seconds.

    Attributes:
        query_seconds: Spark without any sign of life, between two micro-batches.
        batch_seconds: a micro-batch without a round of attempts that comes back; before the query
            begins, no try of a server that does.
        partition_seconds: a sealed block of a journal partition that is not settled.
    """

    query_seconds: float
    batch_seconds: float
    partition_seconds: float


@dataclass(frozen=True, slots=True)
class LoaderHealth:
    """The present state of a loader.

    Attributes:
        heard_at: Spark's last event, or the last step of a micro-batch.
        batch_open: whether a micro-batch is under way.
        away: which server is away while the loader waits for it; else empty.
        begins: whether the servers have answered all that is asked before the query begins.
        started: whether Spark's query runs.
        executors: how many are there; None: tasks run in the driver.
        unseen: why ledger or journal could not be looked at last time; else empty.
        uncounted: why the ledger's blocks could not be counted then, though it could be looked at.
        waiting: by journal partition, for how long the block that waits longest was seen to wait
            at the last look, since the servers answer; 0 where none does.
    """

    now: float
    heard_at: float
    batch_open: bool = False
    away: str = ""
    begins: bool = True
    started: bool = False
    executors: int | None = None
    unseen: str = ""
    uncounted: str = ""
    waiting: Mapping[int, float] = field(default_factory=dict)


def liveness(facts: LoaderHealth, limits: LoaderHealthLimits) -> tuple[Check, ...]:
    """Check whether a restart would help; return every check, failed or not."""
    silent = facts.now - facts.heard_at
    inside = silent if facts.batch_open else 0.0
    return (
        _query(facts, limits, silent),
        Check(
            "batch",
            inside <= limits.batch_seconds,
            f"no block was finished for {inside:.1f} s, limit {limits.batch_seconds:g} s"
            if facts.batch_open
            else "no micro-batch is open",
        ),
        _partitions(facts, limits.partition_seconds),
    )


def _query(facts: LoaderHealth, limits: LoaderHealthLimits, silent: float) -> Check:
    """Check that Spark is heard of, or before it is started that servers are tried."""
    if not facts.begins:
        return Check(
            "query",
            silent <= limits.batch_seconds,
            f"the query has not begun, and the last try of a server ended {silent:.1f} s ago, "
            f"limit {limits.batch_seconds:g} s",
        )
    return Check(
        "query",
        facts.batch_open or silent <= limits.query_seconds,
        f"Spark's query last reported {silent:.1f} s ago, limit {limits.query_seconds:g} s "
        "between two micro-batches",
    )


def readiness(facts: LoaderHealth) -> tuple[Check, ...]:
    """Check whether the loader works now; return every check, failed or not."""
    failed = facts.unseen or facts.uncounted
    return (
        Check("started", facts.started, "runs" if facts.started else "Spark's query has not begun"),
        _executors(facts.executors),
        Check("servers", not facts.away, facts.away or "answer"),
        Check("ledger", not failed, failed or "could be read"),
    )


def _executors(count: int | None) -> Check:
    if count is None:
        return Check("executors", ok=True, why="tasks run in the driver")
    return Check("executors", count > 0, f"{count} are there" if count else "there is none yet")


def _partitions(facts: LoaderHealth, limit: float) -> Check:
    """Check each partition: one may stand still while the others flow."""
    if facts.away or facts.unseen:
        return Check("partitions", ok=True, why="not judged while a server does not answer")
    late = sorted(p for p, seconds in facts.waiting.items() if seconds > limit)
    if not late:
        return Check(
            "partitions", ok=True, why=f"all {len(facts.waiting)} journal partitions make progress"
        )
    shown = ", ".join(map(str, late[:10])) + (" and more" if len(late) > 10 else "")
    return Check(
        "partitions",
        ok=False,
        why=f"blocks of journal partitions {shown} have waited for {limit:g} s",
    )
