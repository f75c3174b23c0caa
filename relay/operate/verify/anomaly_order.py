"""Orders the anomalies of several pipelines by the time of the commits that show them."""

from __future__ import annotations

import threading
from typing import NamedTuple

from relay.operate.verify.judge.anomaly import Anomaly
from relay.records_pb2 import Commit


class DatedAnomaly(NamedTuple):
    """An anomaly, its pipeline, and when the commit was made that shows it."""

    committed_ms: int
    pipeline: str
    anomaly: Anomaly


class Merged:
    """Anomalies not taken yet; each pipeline's audit adds its own, from a thread of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[DatedAnomaly] = []

    def add(self, dated: DatedAnomaly) -> None:
        """Add one more."""
        with self._lock:
            self._waiting.append(dated)

    def take(self) -> list[DatedAnomaly]:
        """Return all that wait, the earliest commit first; equal ones in the order of pipelines."""
        with self._lock:
            taken, self._waiting = self._waiting, []
        return sorted(taken, key=lambda dated: dated[:2])


class CommitTimes:
    """When commits were made: of the last record of each partition, or of each record."""

    def __init__(self, *, each: bool = False) -> None:
        self._each = each
        self._last: dict[int, int] = {}
        self._by_n: dict[tuple[int, int], int] = {}

    def note(self, partition: int, _offset: int, commit: Commit) -> None:
        """Note the next record, about to be judged."""
        self._last[partition] = commit.written_at_ms
        if self._each:
            self._by_n[partition, commit.n] = commit.written_at_ms

    def of(self, anomaly: Anomaly, now_ms: int) -> int:
        """Return Unix milliseconds of the commit that shows it; else of the last, else of now."""
        last = self._last.get(anomaly.partition, now_ms)
        return self._by_n.get((anomaly.partition, anomaly.n), last)
