"""Negative controls: with a guard taken away (tests.broker.unguarded) a campaign of the faults
that the guard is for has to become red."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.chaos import campaigns
from tests.chaos.options import Options
from tests.chaos.running import run
from tests.chaos.servers import SESSION_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.chaos.campaign import Campaign

ROUND_SECONDS = 20.0
SLEEPERS = 4
"""In a round."""
SLEEP_SECONDS = (SESSION_SECONDS + 3, SESSION_SECONDS + 6)


@dataclass(frozen=True, slots=True)
class Control:
    """The faults that a guard is for.

    Attributes:
        kinds: of them, in rounds of ROUND_SECONDS.
        every: seconds between two, on average.
        asleep: relays sleep inside transactions instead, until others have their partitions.
    """

    kinds: tuple[str, ...] = ()
    every: float = 3.0
    asleep: bool = False
    window: int = 100
    proxied: bool = False


GUARDS: dict[str, Control] = {
    "read_committed": Control((), 5.0),
    "committed_truth": Control(("kill_relay",)),
    "one_transaction": Control(("failpoint",), 2.0),
    "generation": Control(asleep=True),
    "abort_on_revoke": Control(("join", "restart_relay"), 2.0),
    "metadata_at_begin": Control(asleep=True),
    "epoch_bump": Control(("stale_end_txn",), 3.0, proxied=True),
    "ledger": Control(("kill_loader", "loader_failpoint"), 2.0, window=1),
    "evidence": Control(("loader_failpoint",), 2.0, window=1),
}


def control(guard: str, seed: int, seconds: float, say: Callable[[str], None]) -> dict[str, Any]:
    """Whether the campaign became red without the guard, how fast, and what was seen first."""
    chosen = GUARDS[guard]
    options = Options(
        seed=seed,
        members=3,
        without=guard,
        window=chosen.window,
        proxied=chosen.proxied,
        patience=1.5,
    )

    def body(campaign: Campaign) -> dict[str, Any]:
        def one(number: int) -> None:
            if chosen.asleep:
                campaigns.zombies(campaign, SLEEPERS, SLEEP_SECONDS, number)
            else:
                campaigns.faults(campaign, number, chosen.kinds, chosen.every, ROUND_SECONDS)

        return {"red_after_seconds": campaigns.controlled(campaign, one, seconds)}

    report = run(options, body, say)
    return {
        "guard": guard,
        "red": not report.clean,
        "seconds": round(report.figures.get("red_after_seconds") or report.seconds, 1),
        "first": next(iter(report.anomalies), ""),
    }
