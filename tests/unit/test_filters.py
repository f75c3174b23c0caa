"""What a plan of ClickHouse tells of rows that are hidden, as its versions write it."""

from __future__ import annotations

import pytest

from relay.clickhouse.hidden_rows import condition


@pytest.mark.parametrize(
    ("plan", "seen"),
    [
        (["Expression", "  ReadFromMergeTree (shop.o)", "  Read type: Default"], ""),
        (["└──ReadFromPreparedSource (Optimized trivial count)"], ""),
        (
            ["ReadFromMergeTree", "  Row level filter", "  Row level filter column:  id > 1"],
            "id > 1",
        ),
        (["Filter (additional filter)", "│  Filter column: id > 1 "], "id > 1"),
        (["  Row-level filter"], "(a condition that the server does not show)"),
        ([], ""),
    ],
)
def test_the_condition(plan: list[str], seen: str) -> None:
    assert condition(plan) == seen
