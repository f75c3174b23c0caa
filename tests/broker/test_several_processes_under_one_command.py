"""`relay run --processes N` is N members that stop together, and none ends the others."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from tests.broker.pipeline import Pipeline


def test_several_processes_share_the_partitions_and_stop_together(pipeline: Pipeline) -> None:
    """Every row comes once, through both members; SIGTERM ends all with status 0."""
    process = pipeline.start("m", arguments=["--processes", "2"])
    pipeline.until(lambda: pipeline.log(process).count("assigned") >= 2, "both members")
    pipeline.send(range(100))
    pipeline.send(range(100, 200), partition=1)
    pipeline.exactly_once()
    process.send_signal(signal.SIGTERM)

    pipeline.until(lambda: process.poll() is not None, "the end of all", pipeline.end_seconds)
    assert process.returncode == 0
    assert {c.member for commits in pipeline.journal().values() for c in commits} <= {"m-0", "m-1"}
    assert pipeline.log(process).count("left the consumer group member") == 2


def test_one_that_dies_is_started_again_and_the_others_go_on(pipeline: Pipeline) -> None:
    """As with several pipelines; every row comes once all the while."""
    process = pipeline.start("m", arguments=["--processes", "2"])
    pipeline.until(lambda: pipeline.log(process).count("assigned") >= 2, "both members")
    killed, lives = psutil.Process(process.pid).children()
    killed.kill()
    pipeline.send(range(100))
    pipeline.send(range(100, 200), partition=1)
    pipeline.exactly_once()
    pipeline.until(lambda: pipeline.log(process).count("joined") >= 3, "the one that died")
    assert lives.is_running()
    assert process.poll() is None
    assert "a relay process ended, starting it again" in pipeline.log(process)
