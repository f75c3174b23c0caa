"""What programs take of the machine: processor time and resident memory, with their children.

Receives names and process ids, gives figures. Never starts or ends anything.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import psutil

from tests.bench.figures import Figure

_LOOK_SECONDS = 0.5  # finding a program's children reads every process of the machine


class Meter:
    """From its making until `figures`; `look` is called often, for the most memory.

    Args:
        pids: the programs, by the name to show.
    """

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self._most = dict.fromkeys(pids, 0)
        self._looked = 0.0
        self._before = {name: cpu_seconds(pid) for name, pid in self._pids.items()}

    def look(self) -> None:
        """Notes what is resident now, if the last look is some time ago."""
        if time.monotonic() - self._looked < _LOOK_SECONDS:
            return
        for name, pid in self._pids.items():
            self._most[name] = max(self._most[name], _resident(pid))
        self._looked = time.monotonic()

    def most(self, name: str) -> int:
        """Bytes that were resident at most when somebody looked."""
        return self._most[name]

    def core_seconds(self) -> dict[str, float]:
        """Processor time that each program has used since the meter was made."""
        return {name: cpu_seconds(pid) - self._before[name] for name, pid in self._pids.items()}

    def figures(self, seconds: float) -> list[Figure]:
        """Share of one core over so many seconds, and the most memory, of each program."""
        found = []
        used = self.core_seconds()
        for name in self._pids:
            found.append(Figure(f"cores used by {name}", used[name] / seconds, "cores"))
            found.append(Figure(f"most memory of {name}", self._most[name] / 1e6, "MB"))
        return found


def family(pid: int) -> list[psutil.Process]:
    """The program, if it is there, and its children."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def cpu_seconds(pid: int) -> float:
    """Processor time of a program and its children, those that have ended too."""
    total = 0.0
    for process in family(pid):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        # Children that have ended and were waited for count with their parent.
        total += times.user + times.system + times.children_user + times.children_system
    return total


def _resident(pid: int) -> int:
    total = 0
    for process in family(pid):
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total
