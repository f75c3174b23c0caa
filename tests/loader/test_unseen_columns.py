"""Which values an INSERT must not leave out, though the table seems not to have their column."""

from __future__ import annotations

import pytest

from loader.clickhouse.tables import Target
from loader.clickhouse.unseen_columns import unseen
from loader.core.table_rules import Nature, Window


@pytest.mark.parametrize(
    ("hidden", "columns", "why"),
    [
        (frozenset(), ["id", "dropped"], ""),
        (frozenset({"price"}), ["id", "dropped"], ""),
        (frozenset({"price", "b c"}), ["b c", "price"], "GRANT INSERT(`b c`, price) ON d.t"),
        (None, ["id"], ""),
        (None, ["id", "dropped"], "whether d.t has column dropped is not known"),
    ],
)
def test_why_values_are_not_left_out(
    hidden: frozenset[str] | None, columns: list[str], why: str
) -> None:
    nature = Nature(Window(0, None, "parts"))
    said = unseen("d.t", Target({"id": "Int64"}, 1, nature, 0, unseen=hidden), columns)
    assert why in said
    assert bool(said) == bool(why)
