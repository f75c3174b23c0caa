"""Runs of a bench remembered, one JSON line each, and what became worse since.

Receives figures of this run and a file of earlier ones, gives medians of those that compare: the
same bench with the same parameters on a machine of the same kind. The rest of a run's entry
(commit, versions, day) says what changed in between.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from relay.errors import ConfigError
from tests.bench.figures import Figure

WORSE_SHARE = 0.2
_SAME_KIND = ("cpu", "cores", "memory_gib", "files")

Entry = dict[str, Any]


def entry(
    bench: str,
    parameters: dict[str, Any],
    machine: dict[str, Any],
    versions: dict[str, str],
    figures: Sequence[Figure],
) -> Entry:
    """This run as the file will hold it."""
    return {
        "bench": bench,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "parameters": parameters,
        "machine": machine,
        "versions": versions,
        "figures": [asdict(figure) for figure in figures],
    }


def read(file: Path) -> list[Entry]:
    """All runs in the file; none where it is not there.

    Raises:
        ConfigError: a line is not a run.
    """
    if not file.exists():
        return []
    found = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        try:
            run = json.loads(line)
            run["bench"], run["parameters"], run["machine"], run["figures"]
        except (ValueError, KeyError, TypeError) as problem:
            raise ConfigError(
                f"{file}, line {number}, is no run of a bench: {problem!r}",
                "Name a file that --history made, or a new one.",
            ) from problem
        found.append(run)
    return found


def append(file: Path, run: Entry) -> None:
    """One line more."""
    with file.open("a") as out:
        out.write(json.dumps(run) + "\n")


def medians(earlier: Sequence[Entry], run: Entry) -> dict[str, float]:
    """By figure, the median over the earlier runs that compare with this one."""
    values: dict[str, list[float]] = {}
    for one in earlier:
        if _kind(one) == _kind(run):
            for figure in one["figures"]:
                values.setdefault(figure["name"], []).append(figure["value"])
    return {name: statistics.median(of) for name, of in values.items()}


def worse(figure: Figure, before: float | None) -> bool:
    """Whether it is worse than the median of earlier runs by more than `WORSE_SHARE`."""
    if before is None or figure.better == "neither":
        return False
    if figure.better == "higher":
        return figure.value < before * (1 - WORSE_SHARE)
    return figure.value > before * (1 + WORSE_SHARE)


def _kind(run: Entry) -> tuple[Any, ...]:
    machine = tuple(run["machine"].get(fact) for fact in _SAME_KIND)
    return (run["bench"], run["parameters"], machine)


def _commit() -> str:
    """What was measured; "unknown" outside of a checkout, with a mark where files differ."""
    root = Path(__file__).parents[2]
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
