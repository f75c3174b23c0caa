"""Figures of a bench, and the statistics that they are. Pure.

Receives samples and weighted values, gives quantiles, a slope, and figures with a direction.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing measured.

    Attributes:
        better: `higher`, `lower`, or `neither` where it only explains another.
        limit: what the project demands: not more, or, where higher is better, not less.
    """

    name: str
    value: float
    unit: str
    better: str = "neither"
    limit: float | None = None

    @property
    def held(self) -> bool | None:
        """Whether the limit is; None where there is none."""
        if self.limit is None:
            return None
        return self.value >= self.limit if self.better == "higher" else self.value <= self.limit


@dataclass(frozen=True, slots=True)
class Curve:
    """One thing measured again and again, with another setting each time.

    Attributes:
        points: (setting, value), the setting in seconds.
        better: as of a Figure.
    """

    name: str
    unit: str
    points: tuple[tuple[float, float], ...]
    better: str = "neither"

    def figures(self) -> list[Figure]:
        """One for each point."""
        return [Figure(f"{self.name}, {x:g} s", y, self.unit, self.better) for x, y in self.points]


def medians(rounds: Sequence[Sequence[Figure]]) -> list[Figure]:
    """Of figures that every round has, in the same order."""
    return [
        replace(of[0], value=statistics.median(figure.value for figure in of))
        for of in zip(*rounds, strict=True)
    ]


def quantile(values: Iterable[tuple[float, int]], share: float) -> float:
    """The least value that at least this share of the weight does not exceed.

    Args:
        values: (value, weight), in any order; weights are rows.
        share: above 0, at most 1.

    Raises:
        ValueError: no weight at all.
    """
    ordered = sorted((value, weight) for value, weight in values if weight > 0)
    if not ordered:
        raise ValueError("nothing was measured")
    # The least whole number of rows that is the share; a hair less, as 0.1 * 30 is above 3.
    left = math.ceil(share * sum(weight for _, weight in ordered) - 1e-9)
    for value, weight in ordered:
        left -= weight
        if left <= 0:
            return value
    return ordered[-1][0]


def slope(samples: Sequence[tuple[float, float]]) -> float:
    """By how much the second value grows per unit of the first: the least squares' line.

    Raises:
        ValueError: fewer than two different times.
    """
    times = [time for time, _ in samples]
    if len(set(times)) < 2:
        raise ValueError("a slope needs samples at two times")
    middle = sum(times) / len(times)
    height = sum(value for _, value in samples) / len(samples)
    above = sum((time - middle) * (value - height) for time, value in samples)
    return above / sum((time - middle) ** 2 for time in times)
