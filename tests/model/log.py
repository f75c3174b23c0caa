"""One partition of one topic of the in-memory Kafka.

Receives values and transaction markers, each of which takes an offset; gives what a
read_committed reader sees.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

LogKey = tuple[str, int]
"""(topic, partition)."""


class Status(Enum):
    """Of a log entry."""

    COMMITTED = "c"
    OPEN = "o"
    ABORTED = "a"
    MARKER = "m"


class Entry(NamedTuple):
    """One offset of a log."""

    value: Any
    status: Status
    tid: str = ""


class Log:
    """One partition of one topic; transaction markers take offsets.

    Copies of a Kafka share their logs: whoever writes clones first (`Kafka.writable`).
    """

    __slots__ = ("_key", "entries", "open")

    def __init__(
        self, entries: list[Entry] | None = None, opened: dict[str, int] | None = None
    ) -> None:
        self.entries = entries if entries is not None else []
        self.open = opened if opened is not None else {}
        self._key: int | None = None

    def clone(self) -> Log:
        return Log(self.entries.copy(), self.open.copy())

    def append(self, value: Any, tid: str = "") -> int:
        offset = len(self.entries)
        if tid:
            self.open.setdefault(tid, offset)
        self.entries.append(Entry(value, Status.OPEN if tid else Status.COMMITTED, tid))
        return offset

    def end(self, tid: str, *, commit: bool) -> None:
        """Write the marker of `tid`'s transaction."""
        status = Status.COMMITTED if commit else Status.ABORTED
        for offset in range(self.open.pop(tid, len(self.entries)), len(self.entries)):
            entry = self.entries[offset]
            if entry.tid == tid and entry.status is Status.OPEN:
                self.entries[offset] = entry._replace(status=status)
        self.entries.append(Entry(None, Status.MARKER, tid))

    @property
    def last_stable(self) -> int:
        return min(self.open.values(), default=len(self.entries))

    def committed(self, start: int = 0, stop: int | None = None) -> list[tuple[int, Any]]:
        """(offset, value) that a read_committed reader gets from [start, stop)."""
        end = self.last_stable if stop is None else min(stop, self.last_stable)
        return [
            (offset, self.entries[offset].value)
            for offset in range(start, end)
            if self.entries[offset].status is Status.COMMITTED
        ]

    def decided(self) -> list[tuple[int, Any]]:
        """(offset, value) that is committed, visible already or behind an open transaction."""
        return [(i, e.value) for i, e in enumerate(self.entries) if e.status is Status.COMMITTED]

    def key(self) -> int:
        if self._key is None:
            self._key = hash(tuple((e.value, e.status.value, e.tid) for e in self.entries))
        return self._key
