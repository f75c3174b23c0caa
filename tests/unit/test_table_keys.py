"""Keys that a repeat of the same messages may make otherwise; pure."""

from __future__ import annotations

import pytest

from relay.clickhouse.table_keys import TableKeys

PLAIN = {"id": "", "ver": "", "name": "", "a `b": "", "n.x": "", "end": "", "ts": ""}


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "1",
        "-1.5e3",
        "0xFF",
        "'now()'",
        "'it\\'s rand()'",
        "[]",
        "[1, 2]",
        "('a', 1)",
        "NULL",
        "true",
        "'2020-01-01'::Date",
        "'2020-01-01'::DateTime64(3, 'UTC')",
        "CAST('2020-01-01', 'Date')",
        "toDate('2020-01-01')",
        "toDateTime64('2020-01-01 00:00:00', 3, 'UTC')",
        "toStartOfInterval(ts, toIntervalDay(1))",
        "lower(name)",
        "concat(name, '-', toString(id))",
        "if(id > 3, ts, 0) + 1",
        "(id % 2) = 1 AND NOT empty(name)",
        "`a \\`b`",
        "n.x",
        "end",
        "cityHash64(name, id)",
    ],
)
def test_of_the_same_message_the_same(expression: str) -> None:
    """Literals, and what known functions make of them and of columns."""
    assert not TableKeys(defaults={**PLAIN, "k": expression}, sorting="id, k").vary("ver")


@pytest.mark.parametrize(
    "expression",
    [
        "now()",
        "now64(6)",
        "NOW()",
        "today()",
        "toDay()",  # another spelling of it
        "toDate(now())",
        "rand()",
        "rand(id)",
        "generateUUIDv4()",
        "generateSnowflakeID()",
        "hostName()",
        "currentUser()",
        "rowNumberInAllBlocks()",
        "dictGet('d', 'v', id)",
        "joinGet('j', 'v', id)",
        "parseDateTimeBestEffort(name)",  # of a text without a year: this one
        "fromAFunctionOfTheirs(id)",
        "toKeyOfTheirs(id)",
        "current_timestamp",
        "not_a_column",
        "(SELECT 1)",
        '"id"',
        "$$id$$",
        "k",  # of itself, which no server takes
        "other",
    ],
)
def test_of_the_same_message_another(expression: str) -> None:
    """Whatever is not known is taken to vary; and wherever in the keys it stands."""
    defaults = {**PLAIN, "k": expression, "other": "now()"}
    assert TableKeys("id, k", "", defaults).vary("ver")
    assert TableKeys("id", "toYYYYMM(k)", defaults).vary("ver")
    assert TableKeys("id", "", defaults).vary("k")
    assert TableKeys("id", "", defaults).vary("`k`")
    assert TableKeys("id", "", {**defaults, "by": "toInt64(k)"}).vary("by")
    assert not TableKeys("id", "", defaults).vary("ver"), "it is in none of them"


def test_a_word_that_is_a_column() -> None:
    """A column named as a word of SQL is a column."""
    assert TableKeys("id, desc", "", {"id": "", "desc": "now()"}).vary()
    assert not TableKeys("id DESC", "", {"id": ""}).vary()
