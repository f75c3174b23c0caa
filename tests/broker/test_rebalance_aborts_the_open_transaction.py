"""A transaction begun in one generation of the group cannot commit in the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.broker.pipeline import Pipeline


@pytest.mark.long  # 25 s; campaigns rebalance all the time
def test_rebalance_aborts_the_open_transaction(pipeline: Pipeline) -> None:
    """The member held up inside a transaction leaves the group; what it sent is aborted."""
    gate = pipeline.directory / "gate"
    gate.touch()
    config = pipeline.config('[kafka.client]\n"max.poll.interval.ms" = 7000')
    slow = pipeline.start("a", config, failpoint=f"before_send_offsets:wait={gate}:2")
    pipeline.until(lambda: sum(map(len, pipeline.journal().values())) == 2, "the first transaction")
    pipeline.send(range(100))

    pipeline.start("b", config)
    pipeline.until(lambda: pipeline.floor(0) == 100, "a commit of the other member")
    gate.unlink()
    pipeline.until(
        lambda: "failed" in pipeline.log(slow) or pipeline.has_blocks_of("a"),
        "the end of the slow member's transaction",
    )

    assert not pipeline.has_blocks_of("a"), "a transaction of an old generation committed"
    pipeline.send(range(100, 200))
    pipeline.exactly_once()
