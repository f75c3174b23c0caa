"""What happens when: a seed, a duration and kinds of faults become a list of faults. Pure.

The same arguments give the same list on every machine; what the list then meets in the
running programs is up to them.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

RELAY_POINTS = (
    "before_keep",
    "before_begin",
    "after_begin",
    "before_produce",
    "mid_produce",
    "after_produce",
    "before_write_journal",
    "after_write_journal",
    "before_send_offsets",
    "after_send_offsets",
    "before_commit",
    "after_commit",
)
"""Failpoints that every transaction of a relay passes."""
LOADER_POINTS = ("before_prepare", "after_prepare", "after_insert", "after_loaded")
"""Failpoints that every block passes in the loader."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        at: seconds from the round's start.
        kind: a key of KINDS.
        target: which of the programs or servers it is for, modulo how many there are.
        seconds: how long it lasts; 0 where that has no meaning.
        detail: of the kind's details, one; or empty.
        nth: at which pass a failpoint acts.
    """

    at: float
    kind: str
    target: int
    seconds: float
    detail: str
    nth: int = 1

    def record(self) -> dict[str, Any]:
        """For the history."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Kind:
    """How faults of a kind are drawn.

    Attributes:
        weight: how often, against the other kinds.
        seconds: least and longest duration.
        details: one of them is drawn.
    """

    weight: int
    seconds: tuple[float, float] = (0.0, 0.0)
    details: tuple[str, ...] = ("",)


# A session is 6 s and a transaction 5 s in a campaign: durations lie on both sides of that.
KINDS: Mapping[str, Kind] = {
    "kill_relay": Kind(12),
    "failpoint": Kind(10, details=RELAY_POINTS),
    "pause_relay": Kind(8, (0.2, 9.0)),
    "pause_at": Kind(6, (5.5, 9.0), ("before_send_offsets", "before_commit", "mid_produce")),
    "twin": Kind(4, (1.0, 6.0)),
    "join": Kind(6, (1.0, 12.0), ("leave", "kill")),
    "restart_relay": Kind(4),
    "clock_relay": Kind(2, (3.0, 10.0), ("3600", "-3600")),
    "kill_loader": Kind(3),
    "loader_failpoint": Kind(4, details=LOADER_POINTS),
    "pause_loader": Kind(2, (0.5, 9.0)),
    "second_loader": Kind(2, (4.0, 12.0)),
    "clock_loader": Kind(1, (5.0, 12.0), ("3600", "-3600")),
    "restart_endpoint": Kind(2, (0.0, 3.0), ("stop", "kill")),
    "bounce_broker": Kind(3, (0.0, 3.0), ("stop", "kill")),
    "coordinator_kill": Kind(3, (0.0, 2.0)),
    "broker_disk_full": Kind(1, (1.0, 3.0)),
    "network": Kind(6, (0.5, 8.0), ("delay", "cut", "half_open", "lossy", "drop_end_txn")),
    "stale_end_txn": Kind(2),
    "step_clock": Kind(3, (2.0, 10.0), ("600", "-600", "3600", "-3600")),
    "grow_source": Kind(2),
    "retention": Kind(2, (1.0, 6.0)),
    "rule": Kind(3, (1.0, 8.0)),
    "view_fails": Kind(3, (1.0, 8.0), ("all", "one")),
    "expire": Kind(2),
    "remake_table": Kind(2, (0.0, 3.0)),
}
PROXIED = frozenset({"network", "stale_end_txn"})
"""Kinds that do nothing where programs reach the brokers directly."""


def plan(
    seed: int,
    seconds: float,
    kinds: Iterable[str],
    every: float,
    weights: Mapping[str, Kind] = KINDS,
) -> list[Fault]:
    """Faults of these kinds over `seconds`, one in `every` seconds on average, in time order.

    Raises:
        KeyError: a kind that is none.
    """
    chance = random.Random(f"{seed}")
    chosen = sorted(set(kinds))
    shares = [weights[kind].weight for kind in chosen]
    faults: list[Fault] = []
    at = chance.uniform(0, every)
    while at < seconds and chosen:
        kind = chance.choices(chosen, shares)[0]
        low, high = weights[kind].seconds
        faults.append(
            Fault(
                at=round(at, 3),
                kind=kind,
                target=chance.randrange(1 << 16),
                seconds=round(chance.uniform(low, high), 3),
                detail=chance.choice(weights[kind].details),
                nth=chance.randint(1, 3),
            )
        )
        at += chance.expovariate(1 / every)
    return faults


def counted(faults: Sequence[Fault]) -> dict[str, int]:
    """How many of each kind."""
    return {kind: sum(f.kind == kind for f in faults) for kind in sorted({f.kind for f in faults})}
