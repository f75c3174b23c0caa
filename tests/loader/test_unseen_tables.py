"""What a reason says of views, and of tables that they fill, which the loader's user does not see.

Pure; tests/doctor/test_unseen_views.py asks a server with users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from loader.clickhouse.tables_behind import UNSEEN, with_unseen
from tests.loader.test_tables_behind import CREATE, PLAIN, Server, facts, row

if TYPE_CHECKING:
    from collections.abc import Sequence

VIEW = row("v", "MaterializedView", create=CREATE)


@pytest.mark.parametrize(
    ("behind", "views"),
    [
        ([], [f"d.v{UNSEEN}"]),
        ([VIEW], ["d.v", f"d.m{UNSEEN}"]),
        ([VIEW, row("m", PLAIN)], ["d.v"]),
    ],
)
def test_what_is_not_seen_is_named_with_the_right(
    behind: Sequence[Any], views: Sequence[str]
) -> None:
    rows = [row("t", PLAIN, ("d", "v")), *behind]

    def ask(_: str, __: int, *, tables: list[str], databases: list[str]) -> Any:
        assert databases == ["d"]
        return [one for one in rows if f"{one[0]}.{one[1]}" in tables]

    assert list(with_unseen(ask, "d.t", ["d.v"])) == views
    assert "SHOW TABLES" in UNSEEN


def test_it_is_named_where_a_token_would_decide() -> None:
    """Red before: only the view was, as one of whose rows a count says nothing."""
    assert facts(Server("")).views == ("d.v", f"d.m{UNSEEN}")
    assert facts(Server(PLAIN)).views == ("d.v",)
