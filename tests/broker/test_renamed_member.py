"""Members that were renamed wait for the sessions of what they were before, and say so."""

from __future__ import annotations

import pytest

from tests.broker.pipeline import Pipeline, wait_until


@pytest.mark.long  # 24 s
def test_a_renamed_member_says_why_it_has_no_partitions(pipeline: Pipeline) -> None:
    config = pipeline.config(session_timeout_seconds=20.0)
    first = pipeline.start("a", config)
    pipeline.send([1])
    pipeline.exactly_once()
    assert "waits for partitions" not in pipeline.log(first)
    first.kill()
    assert first.wait(30) != 0
    renamed = pipeline.start("p-0", config)
    wait_until(lambda: "waits for partitions" in pipeline.log(renamed), "the reason")
    told = [line for line in pipeline.log(renamed).splitlines() if "waits for partitions" in line]
    assert len(told) == 1
    assert "WARNING" in told[0]
    assert "until the session of members that left without notice ends (20 s)" in told[0]
    pipeline.send([2])
    pipeline.exactly_once()
