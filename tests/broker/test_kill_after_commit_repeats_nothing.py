"""A relay that dies right after its commit has nothing to do again."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.broker.pipeline import Pipeline


def test_kill_after_commit_repeats_nothing(pipeline: Pipeline) -> None:
    """The successor makes no block of rows that are in one already."""
    first = pipeline.start("a", failpoint="after_commit:kill:2")
    pipeline.until(lambda: sum(map(len, pipeline.journal().values())) == 2, "the first transaction")
    pipeline.send(range(100))
    pipeline.until(lambda: first.poll() is not None, "the kill")
    assert first.returncode == -signal.SIGKILL

    def blocks() -> int:
        return sum(len(c.blocks) for commits in pipeline.journal().values() for c in commits)

    pipeline.until(lambda: blocks() > 0, "the markers of its transaction")

    pipeline.start("a")
    pipeline.send(range(100, 200), partition=1)
    pipeline.exactly_once()
