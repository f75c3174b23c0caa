"""`relay run --processes N` is N members that end together."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.broker.pipeline import Pipeline


def test_several_processes_share_the_partitions_and_stop_together(pipeline: Pipeline) -> None:
    """Every row comes once, through both members; SIGTERM ends all with status 0."""
    log = pipeline.directory / "several.log"
    with log.open("wb") as output:
        command = [Path(sys.executable).parent / "relay", "run", pipeline.config()]
        process = subprocess.Popen(
            [*command, "--member", "m", "--processes", "2"], stderr=output, stdout=output
        )
    process.log = log  # type: ignore[attr-defined]
    pipeline.processes.append(process)
    pipeline.until(lambda: pipeline.log(process).count("assigned") >= 2, "both members")
    pipeline.send(range(100))
    pipeline.send(range(100, 200), partition=1)
    pipeline.exactly_once()
    process.send_signal(signal.SIGTERM)

    assert process.wait(20) == 0
    assert {c.member for commits in pipeline.journal().values() for c in commits} <= {"m-0", "m-1"}
    assert pipeline.log(process).count("left member") == 2
