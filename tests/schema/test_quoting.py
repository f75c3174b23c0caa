"""Names and texts in SQL, as a server reads them back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relay.clickhouse.quoting import (
    literal,
    quoted,
    quoted_table,
    readable,
    readable_name,
    readable_user,
)

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
        ("currentUser", "`currentUser`"),
    ],
)
def test_a_user_for_people(user: str, written: str) -> None:
    assert readable_user(user) == written


@pytest.mark.parametrize("text", ODD)
def test_a_server_reads_back_what_was_quoted(engine: Engine, text: str) -> None:
    assert engine.rows(f"SELECT {literal(text)} AS {quoted(text)}") == [[text]]
    ((name, *_),) = engine.rows(f"DESCRIBE (SELECT 1 AS {quoted(text)})")
    assert name == text


ADVICE = (
    "ALTER TABLE {table} ADD COLUMN {name} String, ADD INDEX {name} {name} TYPE minmax",
    "ALTER TABLE {table} MODIFY COLUMN {name} REMOVE TTL",
    "ALTER TABLE {table} MODIFY SETTING a = 1",
    "ALTER ROW POLICY p ON {table} TO ALL EXCEPT {user}",
    "ALTER USER {user} MODIFY SETTINGS a = 1",
    "CREATE TABLE {table} AS {table} ENGINE = MergeTree",
    "GRANT INSERT({name}) ON {table} TO {user}",
    "INSERT INTO {table} SELECT * FROM {table}",
    "RENAME TABLE {table} TO {table}",
    "SHOW GRANTS FOR {user}",
    "SYSTEM RESTORE REPLICA {table}",
)
"""Statements as texts for people have them."""


@pytest.mark.parametrize("statement", ADVICE)
def test_a_word_of_the_language_is_a_name_in_statements_for_people(
    engine: Engine, statement: str
) -> None:
    """Red before: GRANT ... TO currentUser, a column `null` and a database `table` were something
    else, or no statement."""
    keywords = " ".join(name for (name,) in engine.rows("SELECT keyword FROM system.keywords"))
    words = {word.lower() for word in keywords.split() if word.isidentifier()}
    assert len(words) > 400
    pairs = []
    for word in sorted({*words, "false", "inf", "nan", "null", "true"}):
        table = f"{word}.{word}"
        shown = {"name": readable_name(word), "table": readable(table), "user": readable_user(word)}
        sure = {"name": quoted(word), "table": quoted_table(table), "user": quoted(word)}
        both = (literal(statement.format(**names)) for names in (shown, sure))
        pairs.append(f"({', '.join(both)})")
    differing = engine.rows(
        f"SELECT shown FROM VALUES('shown String, sure String', {', '.join(pairs)}) "
        "WHERE coalesce(formatQueryOrNull(shown), '') != formatQuery(sure)"
    )
    assert differing == []
