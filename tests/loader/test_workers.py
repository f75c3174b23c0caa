"""Blocks shared out among Spark's Python workers, and what those say when Spark goes away."""

from __future__ import annotations

import contextlib
import gc

import pytest
from pyspark import daemon

from loader.blocks.block_order import ONE_INSERT_BYTES, front, pieces
from loader.blocks.worker import TOGETHER
from loader.core.block_size import rows_size
from loader.spark.workers import (
    SMALL_BYTES,
    TASK_BYTES,
    Traceback,
    inserts_at_once,
    keep,
    shares,
)
from relay.records_pb2 import Block


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


@pytest.mark.parametrize(
    ("blocks", "tasks", "row_bytes", "at_once"),
    [
        (100, 2, SMALL_BYTES, 2),
        (TOGETHER, 8, 0, 2),
        (1, 1, 0, 1),
        (100, 1, 0, 1),
        (TOGETHER + 1, 2, 0, 1),
        (100, 2, SMALL_BYTES + 1, 1),
    ],
)
def test_a_task_of_small_blocks_does_the_work_of_two(
    blocks: int, tasks: int, row_bytes: int, at_once: int
) -> None:
    """Not where it has one slot: who gives one wants one INSERT at a time."""
    assert inserts_at_once(blocks, tasks, row_bytes) == at_once


def of_tables(names: str, row_bytes: int = 1) -> list[Block]:
    """A block for each letter, which is its table."""
    return [Block(id=f"{name}{n}", table=name, row_bytes=row_bytes) for n, name in enumerate(names)]


@pytest.mark.parametrize(
    ("tables", "number", "cut"),
    [
        ("aaabbbccc", 3, ["aaa", "bbb", "ccc"]),
        ("aaaabbbb", 3, ["aaaa", "bbbb"]),
        ("aaabb", 2, ["aaa", "bb"]),
        ("abbbbb", 2, ["a", "bbbbb"]),
        ("aaaaaa", 2, ["aaaaaa"]),
        ("abcdef", 2, ["abc", "def"]),
        ("a", 1, ["a"]),
    ],
)
def test_a_cut_does_not_go_through_what_one_insert_takes(
    tables: str, number: int, cut: list[str]
) -> None:
    assert ["".join(tables[n] for n in some) for some in pieces(of_tables(tables), number)] == cut


def test_large_blocks_of_one_table_are_shared_out() -> None:
    large = of_tables("aaaaaa", ONE_INSERT_BYTES // 6 + 1)

    assert pieces(large, 2) == [range(3), range(3, 6)]
    assert pieces(of_tables("aaaaaa", ONE_INSERT_BYTES // 6), 2) == [range(6)]


def test_rows_that_set_few_of_many_columns_count_as_what_they_take_as_columns() -> None:
    """As producers sent them, an INSERT took all of these blocks, of 8 MB as columns."""
    wide = of_tables("aaaaaa")
    for block in wide:
        block.decoded_bytes = ONE_INSERT_BYTES

    assert pieces(wide, 2) == [range(3), range(3, 6)]
    assert rows_size(wide[0]) == ONE_INSERT_BYTES
    assert rows_size(Block(row_bytes=7, decoded_bytes=5)) == 7, "texts count only there"


@pytest.mark.parametrize(
    ("tables", "few"),
    [("aaabb", 3), ("aabbb", 2), ("aaaab", 4), ("aaaaa", 4), ("aaaa", 4), ("", 0)],
)
def test_what_is_claimed_together_ends_with_a_table(tables: str, few: int) -> None:
    """Of at most four; a table that has more is cut."""
    assert front(of_tables(tables), 4) == few


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
