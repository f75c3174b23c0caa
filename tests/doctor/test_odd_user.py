"""Statements for a user whose name needs quotes, as people paste them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from relay.operate.doctor import grants
from tests.doctor import cases, healthy

if TYPE_CHECKING:
    from relay.operate.doctor.facts import ClickHouseFacts

USER = "block-relay"
_NAMED = re.compile(rf"\b(?:TO|EXCEPT|USER|FOR) (`?){USER}")


def test_no_finding_names_it_bare(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = cases.of_clickhouse

    def judged(facts: ClickHouseFacts, *more: Any, **options: Any) -> Any:
        return judge(replace(facts, user=USER), *more, **options)

    monkeypatch.setattr(cases, "of_clickhouse", judged)
    found = [(code, one.mend) for code, case in cases.CASES.items() for one in case.findings()]
    quotes = [(code, match[1]) for code, mend in found for match in _NAMED.finditer(mend)]
    assert [code for code, quote in quotes if not quote] == []
    assert {"row-policy", "ledger-hidden", "right-table", "table-missing"} <= {c for c, _ in quotes}


def test_grants_for_it() -> None:
    settings = healthy.settings()
    odd = settings.clickhouse.model_copy(update={"user": USER})
    settings = settings.model_copy(update={"clickhouse": odd})
    every = grants.roles(settings, ["shop.orders"])
    lines = [line for role in every for line in grants.as_text(settings, role)]
    told = [match[1] for line in lines if (match := re.search(r"^GRANT .* TO (\S+);", line))]
    assert set(told) == {f"`{USER}`"}
