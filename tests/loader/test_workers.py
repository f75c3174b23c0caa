"""Blocks shared out among Spark's Python workers, and what those say when Spark goes away."""

from __future__ import annotations

import contextlib
import gc

import pytest
from pyspark import daemon

from loader.blocks.worker import TOGETHER
from loader.spark.workers import TASK_BYTES, Traceback, keep, shares


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (EOFError(), ""),
        (BrokenPipeError(), ""),
        (ConnectionResetError(), ""),
        (ValueError("a mistake"), "ValueError: a mistake"),
    ],
)
def test_a_lost_connection_is_no_error(
    error: Exception, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """All else has its traceback."""
    with contextlib.suppress(type(error)):
        try:
            raise error
        finally:  # where sys.exception() is what the daemon has caught
            Traceback.print_exc()
    said = capsys.readouterr().err
    assert says in said
    assert ("Traceback" in said) == bool(says)


def test_the_daemon_prints_with_what_is_replaced() -> None:
    """Another pyspark that does it otherwise is noticed here."""
    assert "print_exc" in daemon.manager.__code__.co_names
    assert "format_exc" in daemon.worker.__code__.co_names
    assert vars(Traceback).keys() >= {"print_exc", "format_exc"}


@pytest.mark.parametrize(
    ("blocks", "row_bytes", "tasks"),
    [
        (1, 0, 1),
        (2 * TOGETHER, 0, 2),
        (2 * TOGETHER + 1, 0, 4),
        (40, 6 * TASK_BYTES, 6),
        (40, 6 * TASK_BYTES + 1, 8),
        (3, 40 * TASK_BYTES, 3),
    ],
)
def test_small_blocks_are_claimed_together_and_large_ones_shared_out(
    blocks: int, row_bytes: int, tasks: int
) -> None:
    """Over two workers."""
    assert shares(blocks, 2, row_bytes) == tasks


def test_the_daemons_search_for_garbage_passes_over_what_is_kept() -> None:
    """It searches behind every task; what came since is found, in a cycle, too."""
    assert "collect" in daemon.manager.__code__.co_names, "then nothing needs to be kept"
    try:
        keep()
        kept = gc.get_freeze_count()
        assert kept > len(gc.get_objects())
        cycle: list[object] = []
        cycle.append(cycle)
        del cycle
        assert gc.collect() > 0
        assert gc.get_freeze_count() == kept
    finally:
        gc.unfreeze()
