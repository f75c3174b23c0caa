"""Anomalies that pass: of what stands now, and not of what the journal says for good. Pure.

What the group's offsets say is settled once `relay accept` has taken note of it, and an open
transaction once it has ended. Nothing else passes: a record of the journal that disagrees with
another stays what it is.
"""

from __future__ import annotations

from collections.abc import Hashable

from relay.operate.verify.judge.anomaly import Anomaly


class Passing:
    """Which of them stand, and which are over."""

    def __init__(self) -> None:
        self._stand: dict[Hashable, list[Anomaly]] = {}
        self._over: set[Anomaly] = set()

    def add(self, place: Hashable, anomaly: Anomaly) -> None:
        """Note one more that stands at this place."""
        self._stand.setdefault(place, []).append(anomaly)
        self._over.discard(anomaly)

    def end(self, place: Hashable) -> list[Anomaly]:
        """Note that all of this place are over; give them."""
        ended = self._stand.pop(place, [])
        self._over.update(ended)
        return ended

    def over(self, anomaly: Anomaly) -> bool:
        """Whether it is."""
        return anomaly in self._over
