"""Which views an INSERT reaches, and where they write, read from rows of system.tables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from relay.operate.doctor.judge.dependents import SystemTable, table, unseen

if TYPE_CHECKING:
    from relay.operate.doctor.judge.dependents import Rows

UUID = "b0b67906-8e48-437e-bed8-32cef235fcce"


def plain(name: str, *dependents: str) -> SystemTable:
    views = [("p", view) for view in dependents]
    return SystemTable("p", name, "", "MergeTree", f"MergeTree -- {name}", "", "", "", views)


def view(name: str, create: str, uuid: str = "") -> SystemTable:
    select = f"SELECT * FROM p.{name}_source"
    return SystemTable("p", name, uuid, "MaterializedView", "", "", create, select, [])


def rows(*found: SystemTable) -> Rows:
    return {(row.database, row.name): row for row in found}


def test_a_table_that_is_not_there() -> None:
    assert table(rows(plain("t")), "p", "u") is None


@pytest.mark.parametrize(
    ("create", "uuid", "into"),
    [
        ("CREATE MATERIALIZED VIEW p.v TO p.s (`id` Int64) AS SELECT 1", "", "s"),
        ("CREATE MATERIALIZED VIEW p.v TO p.`s` AS SELECT 1", "", "s"),
        ("CREATE MATERIALIZED VIEW p.`v` TO `p`.`s x` (`a` Int8) AS SELECT 1", "", "s x"),
        ("CREATE MATERIALIZED VIEW p.v (`id` Int64) ENGINE = MergeTree", UUID, f".inner_id.{UUID}"),
        (
            "CREATE MATERIALIZED VIEW p.v (`a` Int8) ENGINE = Log AS SELECT ' TO p.s'",
            "",
            ".inner.v",
        ),
    ],
)
def test_where_a_view_writes(create: str, uuid: str, into: str) -> None:
    """Its TO, or the table of its own that is named after it, and no text of its SELECT."""
    found = table(rows(plain("t", "v"), view("v", create, uuid), plain(into)), "p", "t")
    assert found is not None
    (reached,) = found.views
    assert (reached.name, reached.into_name) == ("p.v", f"p.{into}")
    assert reached.into is not None
    assert reached.into.engine_full == f"MergeTree -- {into}"
    assert reached.select == "SELECT * FROM p.v_source"


def test_views_behind_views_are_reached_once() -> None:
    """Also where they form a ring; what is no materialized view, or not seen, is no view."""
    found = table(
        rows(
            plain("t", "v", "gone", "s"),
            view("v", "CREATE MATERIALIZED VIEW p.v TO p.s AS SELECT 1"),
            plain("s", "w"),
            view("w", "CREATE MATERIALIZED VIEW p.w TO p.t AS SELECT 1"),
        ),
        "p",
        "t",
    )
    assert found is not None
    assert [(one.name, one.into_name) for one in found.views] == [("p.v", "p.s"), ("p.w", "p.t")]


def test_a_view_into_a_table_that_this_user_may_not_see() -> None:
    hidden = replace(view("v", "CREATE MATERIALIZED VIEW p.v TO q.s AS SELECT 1"), select="x")
    found = table(rows(plain("t", "v"), hidden), "p", "t")
    assert found is not None
    assert [(one.into, one.into_name) for one in found.views] == [(None, "q.s")]


@pytest.mark.parametrize(
    ("behind", "lacking"),
    [
        ([], {("p", "v")}),
        ([view("v", "CREATE MATERIALIZED VIEW p.v TO q.s AS SELECT 1")], {("q", "s")}),
        (
            [view("v", "CREATE MATERIALIZED VIEW p.v TO p.s AS SELECT 1"), plain("s", "w", "v")],
            {("p", "w")},
        ),
        ([view("v", "CREATE MATERIALIZED VIEW p.v TO p.t AS SELECT 1")], set()),
    ],
)
def test_what_is_behind_a_table_and_not_seen(
    behind: list[SystemTable], lacking: set[tuple[str, str]]
) -> None:
    """Red before: a view that is hidden from this user was passed over without a word."""
    assert set(unseen(rows(plain("t", "v"), *behind), "p", "t")) == lacking
