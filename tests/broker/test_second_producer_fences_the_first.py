"""Two processes under one transactional id: the second one lives."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.broker.pipeline import Pipeline


def test_second_producer_under_one_transactional_id_fences_the_first(pipeline: Pipeline) -> None:
    """The first ends once, with the documented status, and every row comes once."""
    first = pipeline.start("a")
    pipeline.send(range(50))
    pipeline.until(lambda: sum(pipeline.rows().values()) == 50, "rows through the first")

    second = pipeline.start("a")
    pipeline.until(lambda: "assigned" in pipeline.log(second), "the second owns the partitions")
    # Into both partitions: a fenced producer hears of it when it has something to commit, and
    # which of the two got which partition is the assignor's choice.
    pipeline.send(range(50, 75), partition=0)
    pipeline.send(range(75, 100), partition=1)
    pipeline.until(lambda: first.poll() is not None, "the end of the first", pipeline.end_seconds)

    assert first.returncode == 7, pipeline.log(first)
    assert "one process per relay.member" in pipeline.log(first)
    assert second.poll() is None
    pipeline.exactly_once()
