"""The peer in Python: Quix Streams, in an environment of its own, for its older confluent-kafka.

Receives a directory, gives the environment's Python, and contenders that it runs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from relay.errors import MissingTool
from tests.bench.contenders import Contender, routed
from tests.bench.source import Source

REQUIREMENT = "quixstreams==3.28.1"
_ROUTING = Path(__file__).parent / "peer" / "routing.py"


def install(directory: Path, progress: Callable[[str], None]) -> Path:
    """A Python that has it.

    Raises:
        MissingTool: the package index does not give it.
    """
    place = directory / "quix"
    progress(f"installing {REQUIREMENT} into {place}")
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    python = place / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", REQUIREMENT]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingTool(
            f"pip does not install {REQUIREMENT}: {done.stderr.strip()[-500:]}",
            "Look at the package index that pip uses here, or run it without --quix.",
        )
    return python


def contender(source: Source, app: str, processes: int, python: Path, directory: Path) -> Contender:
    """So many processes of one consumer group, exactly once."""
    order = {
        "bootstrap": source.bootstrap,
        "source": source.topic,
        "group": app,
        "outputs": {table: f"{app}.{table}" for table in source.shape.names},
        "state": str(directory / f"{app}.state"),
        "processes": processes,
    }
    command = [str(python), str(_ROUTING), json.dumps(order)]
    return Contender(command, f"{app}.", app, routed(source, app), directory / f"{app}.log")
