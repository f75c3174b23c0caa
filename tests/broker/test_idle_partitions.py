"""An idle partition's last journal record stays young, whoever takes it over meanwhile."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.pipeline import Pipeline


@pytest.mark.long  # 30 s
def test_relays_that_are_killed_again_and_again_record_it(pipeline: Pipeline) -> None:
    """Each relay lives for less than the keepalive; retention would delete the last record."""
    pipeline.send([0])
    keepalive = 3 * _lives(pipeline, pipeline.config())  # on this machine, as busy as it is
    config = pipeline.config(journal_keepalive_seconds=keepalive)
    began = time.monotonic()
    lives = []
    while time.monotonic() < began + 4 * keepalive:
        lives.append(_lives(pipeline, config))
    assert max(lives) < keepalive, "a relay had the time to find the partition idle"
    assert len(lives) > len(pipeline.journal()[0]), "each take-over wrote a record"
    written = [commit.written_at_ms / 1000 for commit in pipeline.journal()[0]]
    ages = [later - earlier for earlier, later in pairwise([*written, time.time()])]
    assert max(ages) < 2 * keepalive, ages
    pipeline.start("a", config)
    pipeline.exactly_once()


def _lives(pipeline: Pipeline, config: Path) -> float:
    """Start a relay and kill it some polls after its take-over; return the seconds between."""
    began = time.monotonic()
    relay = pipeline.start("a", config)
    pipeline.until(
        lambda: "the group assigned source partitions" in pipeline.log(relay), "a take-over"
    )
    time.sleep(0.5)  # its life, in which nothing is to happen
    relay.kill()
    relay.wait()
    return time.monotonic() - began
