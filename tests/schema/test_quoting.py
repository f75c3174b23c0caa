"""Names and texts in SQL, as a server reads them back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relay.clickhouse.quoting import literal, quoted, quoted_table, readable, readable_user

if TYPE_CHECKING:
    from tests.schema.engine import Engine

ODD = ["a", "a`b", "`a`", "a\\b", "a'b", "a\nb", "a b", "день", 'a"b', "\\", "`"]


def test_what_needs_no_quotes_has_none_for_people() -> None:
    assert readable("shop.orders") == "shop.orders"
    assert readable("shop.inner`orders") == "shop.`inner\\`orders`"
    assert readable("shop.a\\b") == "shop.`a\\\\b`", "\\b alone would be a backspace"
    assert quoted_table("shop.orders") == "`shop`.`orders`"


@pytest.mark.parametrize(
    ("user", "written"),
    [
        ("loader", "loader"),
        ("default", "default"),
        ("block-relay", "`block-relay`"),
        ("some@where", "`some@where`"),
        ("all", "`all`"),
        ("None", "`None`"),
    ],
)
def test_a_user_for_people(user: str, written: str) -> None:
    assert readable_user(user) == written


@pytest.mark.parametrize("text", ODD)
def test_a_server_reads_back_what_was_quoted(engine: Engine, text: str) -> None:
    assert engine.rows(f"SELECT {literal(text)} AS {quoted(text)}") == [[text]]
    ((name, *_),) = engine.rows(f"DESCRIBE (SELECT 1 AS {quoted(text)})")
    assert name == text
