"""A ledger keeps every row that is written to it; pure."""

from __future__ import annotations

import contextlib

import pytest

from loader.clickhouse.ledger_table import check_clock, check_engine
from relay.errors import ContractBroken


@pytest.mark.parametrize(
    ("engine", "keeps"),
    [
        ("", True),  # there is none yet
        ("MergeTree", True),
        ("ReplicatedMergeTree", True),
        ("SharedMergeTree", True),
        ("ReplacingMergeTree", False),
        ("ReplicatedReplacingMergeTree", False),
        ("SharedSummingMergeTree", False),
        ("AggregatingMergeTree", False),
    ],
)
def test_an_engine_that_merges_is_refused(engine: str, *, keeps: bool) -> None:
    """The claim and the loaded row of a block have one sorting key."""
    refused = pytest.raises(ContractBroken, match=f"`l`.ledger is a {engine}, which merges")
    with contextlib.nullcontext() if keeps else refused:
        check_engine("`l`.ledger", engine)


@pytest.mark.parametrize(
    "engine", ["Distributed", "Null", "Memory", "Buffer", "View", "MaterializedView", "Log"]
)
def test_an_engine_that_keeps_no_rows_itself_is_refused(engine: str) -> None:
    """What is read from it need not be what was written: late, lost at a restart, or never kept."""
    with pytest.raises(ContractBroken, match=f"`l`.ledger is a {engine}, not a MergeTree") as got:
        check_engine("`l`.ledger", engine)
    assert "ReplicatedMergeTree under one path for all" in got.value.next_step


@pytest.mark.parametrize(
    ("kind", "expression", "good"),
    [
        ("DEFAULT", "now64(3)", True),
        ("DEFAULT", "now()", True),
        ("MATERIALIZED", "now64(3, 'UTC')", True),
        ("", "", False),
        ("DEFAULT", "toDateTime64('2024-01-01', 3)", False),
        ("ALIAS", "now64(3)", False),
        ("EPHEMERAL", "now64(3)", False),
    ],
)
def test_rows_know_when_they_were_written(kind: str, expression: str, *, good: bool) -> None:
    """Without the clock's default they count as of 1970, and an ALIAS is of whoever asks."""
    refused = pytest.raises(ContractBroken, match="column at of the ledger")
    with contextlib.nullcontext() if good else refused:
        check_clock("`l`.ledger", kind, expression)
