"""Which row policies hide rows, by what the server says of them."""

from __future__ import annotations

import pytest

from relay.operate.doctor.judge.row_policies import RowPolicy, hiding


def policy(name: str, condition: str, *, restrictive: bool = False) -> RowPolicy:
    return RowPolicy("shop", "orders", name, restrictive, condition)


ALL, SOME = policy("all", "1"), policy("some", "id > 5")
MUST, NEED_NOT = (policy(f"must {one}", one, restrictive=True) for one in ("id > 5", "true"))


@pytest.mark.parametrize(
    ("policies", "shown", "hides"),
    [
        ([], "", ()),
        ([], None, ()),
        ([], "id > 5", ("a row policy or additional_table_filters (id > 5)",)),
        ([SOME, MUST], "", ()),
        ([ALL], None, ()),
        ([ALL, SOME, NEED_NOT], None, ()),
        ([policy("of no SELECT", "")], None, ()),
        ([SOME], None, ("some",)),
        ([SOME], "id > 5", ("some",)),
        ([ALL, SOME, MUST], "id > 5", ("must id > 5",)),
        ([ALL, SOME, MUST], None, ("must id > 5",)),
        ([NEED_NOT, SOME], None, ("some",)),
        ([ALL], "id > 5", ("a row policy or additional_table_filters (id > 5)",)),
    ],
)
def test_what_hides_rows(
    policies: list[RowPolicy], shown: str | None, hides: tuple[str, ...]
) -> None:
    assert hiding(policies, shown) == hides
