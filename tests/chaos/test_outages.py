"""What is judged while brokers are away, and what is cut of a dead one's files; no servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.outages import Rest, judge_rest
from tests.chaos.segments import CHECKPOINTS, METADATA, cut_ends

if TYPE_CHECKING:
    from pathlib import Path

WAITING = Rest(seconds=300.0, busy_seconds=6.0, grown=2_000_000, lines=60)


def test_a_program_that_waits_is_as_promised() -> None:
    assert judge_rest("relay-m0", WAITING) == []


@pytest.mark.parametrize(
    ("rest", "says"),
    [
        (Rest(300.0, 290.0, 0, 0), "took 97% of a processor"),
        (Rest(300.0, 0.0, 300_000_000, 0), "grew by 300 MB"),
        (Rest(300.0, 0.0, 0, 30_000), "wrote 100 lines a second"),
    ],
)
def test_a_program_that_spins_or_grows_is_named(rest: Rest, says: str) -> None:
    """Negative control of each bound."""
    (found,) = judge_rest("relay-m0", rest)

    assert says in found


def test_the_end_of_each_newest_segment_is_cut(tmp_path: Path) -> None:
    """Older segments, the brokers' own metadata and empty partitions stay as they are."""
    for partition, segments in {
        "t-0": {"00000000000000000000.log": 5000, "00000000000000000100.log": 3000},
        "t-1": {"00000000000000000000.log": 600},
        "t-2": {"00000000000000000000.log": 0},
        METADATA: {"00000000000000000000.log": 9000},
    }.items():
        (tmp_path / partition).mkdir()
        for name, size in segments.items():
            (tmp_path / partition / name).write_bytes(b"x" * size)
    for name in CHECKPOINTS:
        (tmp_path / name).write_text("0\n0\n")

    assert cut_ends(tmp_path, 1000) == {"t-0": 1000, "t-1": 300}

    sizes = {
        f"{path.parent.name}/{path.name}": path.stat().st_size for path in tmp_path.rglob("*.log")
    }
    assert sizes == {
        "t-0/00000000000000000000.log": 5000,
        "t-0/00000000000000000100.log": 2000,
        "t-1/00000000000000000000.log": 300,
        "t-2/00000000000000000000.log": 0,
        f"{METADATA}/00000000000000000000.log": 9000,
    }
    assert not any((tmp_path / name).exists() for name in CHECKPOINTS)
