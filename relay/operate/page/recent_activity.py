"""Computes the last minutes' rates and the latest blocks from the journal. Pure."""

from __future__ import annotations

import threading
from collections import Counter, deque
from typing import Any

from relay.operate.view.journal_state import Listed
from relay.records_pb2 import Commit

WINDOW_SECONDS = 600
"""Of the plots."""
STEP_SECONDS = 5
"""Of the rates: the time one point stands for."""
BLOCKS = 300
"""The latest so many are plotted and listed."""


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
                "id": one.block.id,
                "table": one.block.table,
                "partition": one.partition,
                "rows": one.block.rows,
                "bytes": one.block.row_bytes,
                "messages": one.block.messages,
                "reason": one.block.reason,
                "sealed_at_ms": one.block.sealed_at_ms,
            }
            for one in latest
        ]

    def journal_offset(self, block: str) -> int:
        """Return where the record lies that lists it; 0 where it is none of the latest."""
        with self._lock:
            return next((one.offset for one in self._blocks if one.block.id == block), 0)
