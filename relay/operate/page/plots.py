"""What the page plots: rates and blocks by the journal, lag and ages by the screens. Pure."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from relay.operate.view.journal_state import Listed
from relay.records_pb2 import Commit

WINDOW_SECONDS = 600
"""The plots show so much time."""
STEP_SECONDS = 5
"""One point of the rates stands for so much time."""
BLOCKS = 300
"""The latest so many are plotted and listed."""
EVERY_SECONDS = 2.0
"""Between two screens."""


class Trail:
    """Rates and blocks of all source partitions together. Any thread may look."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: Counter[int] = Counter()
        self._blocks: deque[Listed] = deque(maxlen=BLOCKS)

    def add(self, partition: int, offset: int, commit: Commit) -> None:
        """Add the next record of a journal partition."""
        step = commit.written_at_ms // 1000 // STEP_SECONDS
        with self._lock:
            for block in commit.blocks:
                self._blocks.append(Listed(block, partition, offset, commit))
                self._rows[step] += block.rows
            if len(self._rows) > 4 * WINDOW_SECONDS // STEP_SECONDS:
                oldest = max(self._rows) - WINDOW_SECONDS // STEP_SECONDS
                self._rows = Counter({at: n for at, n in self._rows.items() if at >= oldest})

    def rates(self, now_ms: int) -> list[tuple[int, float]]:
        """Return (Unix milliseconds, rows per second) of every step that has ended."""
        end = now_ms // 1000 // STEP_SECONDS
        with self._lock:
            return [
                (at * STEP_SECONDS * 1000, self._rows[at] / STEP_SECONDS)
                for at in range(end - WINDOW_SECONDS // STEP_SECONDS, end)
            ]

    def blocks(self) -> list[dict[str, Any]]:
        """Return the latest blocks, oldest first; times are Unix milliseconds."""
        with self._lock:
            latest = list(self._blocks)
        return [
            {
                "id": listed.block.id,
                "table": listed.block.table,
                "partition": listed.partition,
                "rows": listed.block.rows,
                "bytes": listed.block.row_bytes,
                "messages": listed.block.messages,
                "reason": listed.block.reason,
                "sealed_at_ms": listed.block.sealed_at_ms,
            }
            for listed in latest
        ]

    def journal_offset(self, block: str) -> int:
        """Return where the record lies that lists it; 0 where it is none of the latest."""
        with self._lock:
            return next((listed.offset for listed in self._blocks if listed.block.id == block), 0)


class Point(NamedTuple):
    """One look.

    Attributes:
        at_ms: Unix time.
        lag: messages of all source partitions that no relay has polled; None: not known.
        seconds: age of the oldest message that no relay has polled, of the oldest buffer that
            a relay holds, as far as the journal tells, or of the oldest row that is sealed and not
            in ClickHouse, whichever is oldest; None: not known.
    """

    at_ms: int
    lag: int | None
    seconds: float | None


def point(screen: Mapping[str, Any]) -> Point:
    """Return the point of one screen, as `relay status --json` prints it."""
    lags = [row["lag"] for row in screen["partitions"]]
    ages = [row["lag_seconds"] for row in screen["tables"]]
    # Of a source that may not be read the ages are not known, and tell of nothing else.
    ages += [
        age
        for row in screen["partitions"]
        for age in (row["lag_seconds"], row["held_seconds"])
        if age is not None
    ]
    return Point(
        screen["at_ms"],
        sum(lags) if lags and None not in lags else None,
        max(ages) if ages and None not in ages else None,
    )


class Samples:
    """The last screen, and a point for each of the last minutes' screens. Any thread may look."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._points: deque[Point] = deque(maxlen=round(WINDOW_SECONDS / EVERY_SECONDS))
        self._screen: dict[str, Any] | None = None
        self._problem = "not read yet"
        self._whole_at_ms = 0

    def add(self, screen: dict[str, Any]) -> None:
        """Add the next screen."""
        with self._lock:
            self._screen, self._problem = screen, ""
            self._points.append(point(screen))
            if screen["clickhouse"] == "ok":
                self._whole_at_ms = screen["at_ms"]

    def fail(self, at_ms: int, problem: str) -> None:
        """Note that there was no screen."""
        with self._lock:
            self._problem = problem
            self._points.append(Point(at_ms, None, None))

    def latest(self) -> tuple[dict[str, Any] | None, str]:
        """Return the last screen, and why there is none since; empty where there is."""
        with self._lock:
            return self._screen, self._problem

    def whole_at_ms(self) -> int:
        """Return when ClickHouse's part was last in a screen, Unix milliseconds; 0: not yet."""
        with self._lock:
            return self._whole_at_ms

    def points(self) -> list[Point]:
        """Return the points, oldest first."""
        with self._lock:
            return list(self._points)
