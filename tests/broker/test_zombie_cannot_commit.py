"""A relay that slept past its session timeout has lost its partitions, and learns it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.broker.pipeline import is_stopped

if TYPE_CHECKING:
    from tests.broker.pipeline import Pipeline


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("before_produce", marks=pytest.mark.long),
        "before_send_offsets",
        "before_commit",
    ],
)
def test_relay_stopped_past_its_session_timeout_cannot_commit(
    pipeline: Pipeline, step: str
) -> None:
    """Stopped inside a transaction, replaced by another member, continued: no row twice."""
    zombie = pipeline.start("a", failpoint=f"{step}:stop:2")
    pipeline.until(lambda: sum(map(len, pipeline.journal().values())) == 2, "the first transaction")
    pipeline.send(range(100))
    pipeline.until(lambda: is_stopped(zombie), "the zombie stands in its transaction")

    other = pipeline.start("b")
    pipeline.until(lambda: pipeline.floor(0) == 100, "a commit of the other member")
    zombie.send_signal(signal.SIGCONT)
    pipeline.until(
        lambda: (
            zombie.poll() is not None
            or "failed" in pipeline.log(zombie)
            or pipeline.has_blocks_of("a")
        ),
        "the end of the zombie's transaction",
    )

    assert other.poll() is None
    assert not pipeline.has_blocks_of("a"), "the zombie committed"
    pipeline.send(range(100, 200))
    pipeline.exactly_once()
