"""How far `relay verify --follow` has come and what it found: for metrics, health and page.

Receives records, anomalies and the end of every round from the thread that audits; any other
thread may look. Pure: the time is an argument.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from typing import Any, NamedTuple

from relay.operate.verify.judge.anomaly import Anomaly, AnomalyKind
from relay.records_pb2 import Commit

SHOWN = 200
"""Anomalies that are kept to be shown; all are counted."""
SILENT_SECONDS = 120.0
"""Without a record or the end of a round: longer than all requests of a round may take."""


class Last(NamedTuple):
    """The last record audited of a partition; `at_ms` is when the relay wrote it."""

    n: int
    offset: int
    floor: int
    at_ms: int


class ReportedAnomaly(NamedTuple):
    """An anomaly, and the Unix time when it was reported."""

    anomaly: Anomaly
    at_ms: int

    def as_json(self) -> dict[str, Any]:
        """Return it for page and log."""
        return {**self.anomaly.as_json(), "at_ms": self.at_ms}


class AuditProgress:
    """What is known now.

    Args:
        now: when the verifier starts: monotonic, in seconds.
        at: the same as Unix time in seconds.

    Attributes:
        rounds: that ended well.
        waited: rounds that ended because a server was away.
        problem: why the last one did; empty where it ended well.
        turned_at: Unix time in seconds of the last round that ended well; of the start until then.
    """

    def __init__(self, now: float, at: float) -> None:
        self._lock = threading.Lock()
        self._last: dict[int, Last] = {}
        self._kinds: Counter[AnomalyKind] = Counter()
        self._reported: deque[ReportedAnomaly] = deque(maxlen=SHOWN)
        self._recorded_at = now
        self.rounds = self.waited = 0
        self.problem = ""
        self.turned_at = at

    def record(self, partition: int, offset: int, commit: Commit, now: float) -> None:
        """Note that one more was audited; `now` is monotonic, in seconds."""
        with self._lock:
            self._last[partition] = Last(commit.n, offset, commit.floor, commit.written_at_ms)
            self._recorded_at = now

    def anomaly(self, anomaly: Anomaly, at_ms: int) -> None:
        """Note that one more was found."""
        with self._lock:
            self._kinds[anomaly.kind] += 1
            self._reported.append(ReportedAnomaly(anomaly, at_ms))

    def turned(self, now: float, at: float, problem: str = "") -> None:
        """Note that a round ended: `now` is monotonic, `at` Unix time, both in seconds."""
        with self._lock:
            self._recorded_at = now
            self.problem = problem
            if problem:
                self.waited += 1
            else:
                self.rounds += 1
                self.turned_at = at

    def last(self) -> dict[int, Last]:
        """Return the last record by partition."""
        with self._lock:
            return dict(self._last)

    def kinds(self) -> dict[AnomalyKind, int]:
        """Return anomalies of every kind there is."""
        with self._lock:
            return {kind: self._kinds[kind] for kind in AnomalyKind}

    def reported(self) -> list[ReportedAnomaly]:
        """Return the latest SHOWN anomalies, oldest first."""
        with self._lock:
            return list(self._reported)

    def silent_seconds(self, now: float) -> float:
        """Return seconds since the last record or the end of a round; `now` is monotonic."""
        with self._lock:
            return now - self._recorded_at
