"""A ledger keeps every row that is written to it; pure."""

from __future__ import annotations

import contextlib

import pytest

from loader.clickhouse.ledger_table import check_engine
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
