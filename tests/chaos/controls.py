"""Negative controls: with a guard taken away (tests.broker.unguarded) a campaign of the faults
that the guard is for has to become red."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.chaos import campaigns
from tests.chaos.options import Options
from tests.chaos.running import run

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.chaos.campaign import Campaign


@dataclass(frozen=True, slots=True)
class Control:
    """The faults that a guard is for; `every` seconds on average."""

    kinds: tuple[str, ...]
    every: float = 3.0
    window: int = 100
    proxied: bool = False


GUARDS: dict[str, Control] = {
    "read_committed": Control((), 5.0),
    "committed_truth": Control(("kill_relay",)),
    "one_transaction": Control(("failpoint",), 2.0),
    "generation": Control(("pause_at",), 4.0),
    "abort_on_revoke": Control(("join", "restart_relay"), 2.0),
    "metadata_at_begin": Control(("pause_at", "join"), 3.0),
    "acked": Control(("kill_relay", "restart_relay"), 3.0),
    "epoch_bump": Control(("network",), 2.0, proxied=True),
    "ledger": Control(("kill_loader", "loader_failpoint"), 2.0, window=1),
    "row_count": Control(("loader_failpoint",), 2.0, window=1),
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
        taken = campaigns.controlled(campaign, chosen.kinds, seconds, chosen.every)
        return {"red_after_seconds": taken}

    report = run(options, body, say)
    return {
        "guard": guard,
        "red": not report.clean,
        "seconds": round(report.figures.get("red_after_seconds") or report.seconds, 1),
        "first": next(iter(report.anomalies), ""),
    }
