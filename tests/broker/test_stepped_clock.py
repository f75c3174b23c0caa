"""Somebody sets the wall clock while a relay works: rows flow, and it is healthy, as before."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import wall_clock
from tests.metrics.asking import address_in, got

if TYPE_CHECKING:
    from tests.broker.pipeline import Pipeline


@pytest.mark.parametrize("seconds", [-600, 600])
def test_the_clock_is_set_under_way(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    """Each message is in a block within seconds, in a transaction of its own."""
    step, root = pipeline.directory / "step", Path(__file__).parents[2]
    for name, value in wall_clock.environment(pipeline.directory, step, root).items():
        monkeypatch.setenv(name, value)
    relay = pipeline.start("a", arguments=["--http", "127.0.0.1:0"])
    pipeline.until(lambda: address_in(pipeline.log(relay)) is not None, "the address")
    address = address_in(pipeline.log(relay)) or ""
    pipeline.send([0])
    pipeline.exactly_once()
    pipeline.until(lambda: got(address, "/readyz")[0] == 200, "readiness")
    wall_clock.set_by(step, seconds)
    written = [commit.written_at_ms for commit in pipeline.journal()[0]]
    for row in range(1, 6):
        pipeline.send([row])
        pipeline.until(lambda row=row: pipeline.rows()[row] == 1, f"row {row}")  # type: ignore[misc]
        assert [got(address, f"/{one}")[0] for one in ("healthz", "readyz")] == [200, 200]
    pipeline.exactly_once()
    commits = [c for c in pipeline.journal()[0] if c.blocks]
    assert len(commits) == 6
    shown = commits[-1].written_at_ms - written[-1]
    assert abs(shown / 1000 - seconds) < 300, "the relay has not seen the step"
    assert abs(commits[-1].written_at_ms / 1000 - time.time() - seconds) < 300
