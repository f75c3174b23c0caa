"""Which tables rows may go into."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from loader.clickhouse import ledger_table
from relay.config.allowed_tables import LEDGER_COLUMNS, LEDGER_LATER, Targets, is_ledger
from relay.config.settings import Source


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("system.query_log", "ClickHouse's own"),
        ("SYSTEM.parts", "ClickHouse's own"),
        ("INFORMATION_SCHEMA.tables", "ClickHouse's own"),
        ("information_schema.columns", "ClickHouse's own"),
        ("books.ledger", "a loader's ledger"),
        ("books.ledger_of_sales", ""),
        ("books.orders", ""),
        ("shop.ledger", ""),  # unless its columns say so
        ("systems.orders", ""),
    ],
)
def test_without_a_list_all_but_clickhouses_own_and_the_ledger(table: str, why: str) -> None:
    said = Targets("books").refusal(table)
    assert bool(said) == bool(why)
    assert why in said


@pytest.mark.parametrize(
    ("table", "allowed"),
    [
        ("shop.orders", True),
        ("shop.x", True),
        ("shops.orders", False),
        ("eshop.orders", False),
        ("dims.countries", True),
        ("dims.countries2", False),
        ("web.events_2026", True),
        ("books.ledger", False),
        ("system.parts", False),
    ],
)
def test_a_list_allows_what_it_names_and_never_a_ledger(table: str, *, allowed: bool) -> None:
    patterns = ["shop.*", "dims.countries", "web.events_*", "books.*", "system.*"]
    assert (Targets("books", patterns).refusal(table) == "") == allowed


@pytest.mark.parametrize("pattern", ["shop", "", "shop.orders.x", "shop.or ders", "`shop`.orders"])
def test_a_list_holds_tables(pattern: str) -> None:
    with pytest.raises(ValidationError, match=r"not database\.table"):
        Source(topic="rows", tables=[pattern])


def test_a_ledger_is_known_by_its_columns() -> None:
    assert ledger_table.COLUMNS.keys() - LEDGER_LATER >= LEDGER_COLUMNS
    assert ledger_table.COLUMNS.keys() >= LEDGER_LATER
    assert is_ledger(ledger_table.COLUMNS)
    assert not is_ledger(LEDGER_COLUMNS - {"claim"})
