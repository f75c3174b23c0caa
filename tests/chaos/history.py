"""Everything that a campaign did, as JSON lines, so that what went wrong can be read and
played again.

Receives events, gives a file that is written line by line: a campaign that is killed leaves
what it did up to then.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from relay.dev.jars import KAFKA_VERSION

PACKAGES = ("block-relay", "confluent-kafka", "kafka-python", "chdb-core", "pyspark")


class History:
    """The file; any thread may write into it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("a", encoding="utf-8")
        self._lock = threading.Lock()
        self._begun = time.monotonic()

    def write(self, event: str, **fields: Any) -> None:
        """One line; `t` is seconds since the campaign began."""
        line = {"t": round(time.monotonic() - self._begun, 3), "event": event, **fields}
        with self._lock:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()

    def close(self) -> None:
        self._file.close()


def versions() -> dict[str, str]:
    """Of everything whose behaviour a campaign depends on."""
    found = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {**found, "kafka": KAFKA_VERSION, "python": platform.python_version()}


def commit() -> str:
    """The source's, with a + where files differ from it; empty without git."""
    root = Path(__file__).parent
    asked = ["git", "-C", str(root), "describe", "--always", "--dirty=+", "--abbrev=12"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def command_of(path: Path) -> tuple[str, dict[str, Any]]:
    """The command and the options, the seed among them, that made a history.

    Raises:
        ValueError: the file does not begin as a history does.
    """
    with path.open(encoding="utf-8") as file:
        first = json.loads(file.readline() or "{}")
    if first.get("event") != "campaign":
        raise ValueError(f"{path} is no history of a campaign: its first line says {first}")
    return str(first["command"]), dict(first["options"])
