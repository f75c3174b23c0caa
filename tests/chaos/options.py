"""What a campaign is made of, and how it ended."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.truth import Shape

LOADER_GUARDS = frozenset({"ledger", "evidence"})
"""Guards of tests.broker.unguarded that are the loader's."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a campaign is made of.

    Attributes:
        loader: "spark" or "bare" (tests.chaos.bareloader).
        window: deduplication window of the tables that have the block column.
        without: the guard that relays or loader run without (tests.broker.unguarded).
        relay: settings of the section [relay] that differ from a campaign's.
        code: where the product's code is that programs begin with; None: in this checkout.
        patience: how much longer than promised is waited, for a machine that is shared.
    """

    seed: int
    brokers: int = 1
    members: int = 2
    loader: str = "bare"
    window: int = 100
    without: str = ""
    proxied: bool = False
    code: Path | None = None
    patience: float = 6.0
    relay: dict[str, float] = field(default_factory=dict)
    shape: Shape = field(default_factory=Shape)


@dataclass(slots=True)
class Report:
    """How a campaign ended."""

    seed: int
    anomalies: dict[str, int]
    figures: dict[str, Any]
    seconds: float

    @property
    def clean(self) -> bool:
        return not self.anomalies

    def record(self) -> dict[str, Any]:
        """For machines."""
        return {**asdict(self), "clean": self.clean}
