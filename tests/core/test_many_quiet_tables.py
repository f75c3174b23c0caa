"""How old rows of many quiet tables are when they are sealed, in virtual time."""

from __future__ import annotations

from dataclasses import replace

from tests.core.virtual_relay import Load, sealed

QUIET = Load(tables=200, partitions=6, rate=2_000, per_message=5)
BUDGET = 44.0
"""block.max_per_second, as shipped."""


def test_rows_of_200_quiet_tables_are_sealed_within_the_time_of_200_inserts() -> None:
    """Four and a half seconds from one turn of a table to the next, whatever its partitions."""
    found = sealed(QUIET, 8, 10)

    assert found.age(0.5) <= 2.9
    assert found.age(0.99) <= 6.0
    assert found.inserts / found.seconds <= BUDGET * 1.05
    assert found.transactions / found.seconds <= 1.5


def test_blocks_that_are_inserted_one_by_one_share_the_budget() -> None:
    """ClickHouse gets no more statements of them: their rows wait."""
    found = sealed(replace(QUIET, alone=True), 12, 10)

    assert found.blocks == found.inserts <= BUDGET * 1.05 * found.seconds
    assert found.age(0.99) > 8


def test_a_few_busy_tables_are_sealed_by_age_alone() -> None:
    found = sealed(Load(tables=8, partitions=4, rate=50_000, per_message=100), 5, 10)

    assert found.age(0.5) <= 0.45
    assert found.age(1.0) <= 0.9
