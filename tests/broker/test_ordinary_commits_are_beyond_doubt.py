"""The doubt about a transaction's end (tests/mock) is for faults: without one, none is seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.broker.pipeline import Pipeline

TRANSACTIONS = 20


@pytest.mark.long  # 17 s
def test_commits_on_a_healthy_broker_leave_no_doubt(pipeline: Pipeline) -> None:
    """The real broker's answers read as clean ends: one producer serves every transaction."""
    relay = pipeline.start("a")
    for round_ in range(TRANSACTIONS):
        pipeline.send([round_], round_ % 2)
        pipeline.until(
            lambda rows=round_ + 1: sum(pipeline.rows().values()) == rows,  # type: ignore[misc]
            f"row {round_}",
        )

    assert sum(len(commits) for commits in pipeline.journal().values()) >= TRANSACTIONS
    assert "replacing the producer" not in pipeline.log(relay)
    pipeline.exactly_once()
