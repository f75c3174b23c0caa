"""relay.program.spelling: which names somebody probably meant."""

from __future__ import annotations

import pytest

from relay.program.spelling import did_you_mean, did_you_mean_table, meant

TABLES = ("shop.orders", "shop.returns", "museum.orders", "museum.cars")


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("shop.ordres", "shop.orders or museum.orders"),
        ("shop.Orders", "shop.orders or museum.orders"),
        ("shp.orders", "shop.orders or museum.orders"),
        ("shop.cars", "museum.cars"),
        ("shop.return", "shop.returns"),
        ("shop.customers", ""),
        ("museum.planes", ""),
    ],
)
def test_tables_are_compared_by_their_own_names(table: str, expected: str) -> None:
    """Not by the database, which most have in common: that alone makes no table like another."""
    wanted = f"; did you mean {expected}?" if expected else ""
    assert did_you_mean_table(table, TABLES) == wanted


def test_a_table_that_is_there_is_not_taken_for_itself() -> None:
    assert did_you_mean_table("museum.cars", TABLES) == ""


def test_other_names() -> None:
    assert meant("stauts", ["status", "run"]) == "status"
    assert did_you_mean("tutoril", ["tutorial", "faq"]) == "; did you mean tutorial?"
    assert did_you_mean("x", []) == ""
