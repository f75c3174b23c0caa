"""Somebody sets the wall clock while a relay works: rows flow, and it is healthy, as before."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.broker.pipeline import Pipeline

SITE = """
import os, time
from pathlib import Path

_time, _time_ns, _file = time.time, time.time_ns, Path(os.environ["WALL_STEP"])

def _step():
    try:
        return int(_file.read_text() or 0)
    except OSError:
        return 0

time.time = lambda: _time() + _step()
time.time_ns = lambda: _time_ns() + _step() * 10**9
"""


@pytest.mark.parametrize("seconds", [-600, 600])
def test_the_clock_is_set_under_way(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    """Each message is in a block within seconds, in a transaction of its own."""
    site = pipeline.directory / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE, encoding="utf-8")
    step = pipeline.directory / "step"
    monkeypatch.setenv("WALL_STEP", str(step))
    root = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), str(root)]))
    pipeline.start("a")
    pipeline.send([0])
    pipeline.exactly_once()
    step.write_text(str(seconds), encoding="utf-8")
    written = [commit.written_at_ms for commit in pipeline.journal()[0]]
    for row in range(1, 6):
        pipeline.send([row])
        pipeline.until(lambda row=row: pipeline.rows()[row] == 1, f"row {row}", 10)  # type: ignore[misc]
    pipeline.exactly_once()
    commits = [c for c in pipeline.journal()[0] if c.blocks]
    assert len(commits) == 6
    shown = commits[-1].written_at_ms - written[-1]
    assert abs(shown / 1000 - seconds) < 60, "the relay has not seen the step"
    assert abs(commits[-1].written_at_ms / 1000 - time.time() - seconds) < 60
