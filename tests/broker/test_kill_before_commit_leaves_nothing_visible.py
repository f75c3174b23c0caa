"""A relay that dies at any step before the commit leaves nothing that a reader sees."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.broker.pipeline import Pipeline

# The first transaction records where the partitions begin; the second holds the rows.
STEPS = ("mid_produce", "before_write_journal", "before_send_offsets", "before_commit")


@pytest.mark.parametrize("step", STEPS)
def test_kill_before_commit_leaves_nothing_visible(pipeline: Pipeline, step: str) -> None:
    """After a SIGKILL there is no block and no floor moved; a successor delivers every row."""
    first = pipeline.start("a", failpoint=f"{step}:kill:2")
    pipeline.until(lambda: sum(map(len, pipeline.journal().values())) == 2, "the first transaction")
    pipeline.send(range(100))
    pipeline.until(lambda: first.poll() is not None, "the kill")

    assert first.returncode == -signal.SIGKILL
    assert not any(c.blocks for commits in pipeline.journal().values() for c in commits)
    pipeline.committed_is_journal_head()

    pipeline.start("a")
    pipeline.exactly_once()
