"""What the relay's log says was committed."""

from __future__ import annotations

import logging

import pytest

from relay.blocks.form_block import BlockFacts
from relay.core.state import Seal, SealReason
from relay.process.log_lines import CommitTotals
from relay.process.seal_results import Sent
from tests.core.build import buffer


def test_fields_that_tables_never_had_are_logged_by_table_and_number(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages with unknown fields are summed over the buffers, logged once, and then anew."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(CommitTotals, "EVERY_SECONDS", 0.0)
    totals = CommitTotals()
    for table, unknown in (("d.t", {"9": 2}), ("d.t", {"9": 1, "7.3": 4}), ("d.u", {})):
        seal = Seal(0, table, "b", SealReason.AGE, buffer(0))
        totals.add(Sent(seal, BlockFacts(unknown=unknown), [], seal, 0))
    totals.report()
    warnings = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert [one.__dict__["held"] for one in warnings] == ["d.t field 7.3: 4, d.t field 9: 3"]
    caplog.clear()
    totals.report()
    assert [one.levelno for one in caplog.records] == [logging.INFO]
