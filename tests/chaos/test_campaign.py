"""A short campaign with a fixed seed, and proof that its verdict can be red."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos import campaigns, journal_file
from tests.chaos.history import command_of
from tests.chaos.options import Options
from tests.chaos.running import run
from tests.verify import replay

if TYPE_CHECKING:
    from pathlib import Path

    from tests.chaos.campaign import Campaign

pytestmark = [pytest.mark.servers, pytest.mark.timeout(1500)]
"""A minute on an idle machine; a crowded one only takes longer."""

KINDS = (
    *("kill_relay", "failpoint", "pause_relay", "twin", "join", "restart_relay", "clock_relay"),
    *("kill_loader", "loader_failpoint", "pause_loader", "second_loader"),
)
FAULTS, PATIENCE = 10, 12.0


def test_no_row_is_lost_and_none_comes_twice(tmp_path: Path) -> None:
    """Relays and loader are killed, paused, doubled and moved while the source is written."""

    def body(campaign: Campaign) -> None:
        campaigns.mixed(campaign, 25.0, KINDS, 1.0)
        while campaign.performed.total() < FAULTS:  # on a crowded machine each takes seconds
            campaigns.faults(campaign, 1, KINDS, 1.0, 25.0)

    options = Options(seed=20, members=2, window=1, patience=PATIENCE)
    report = run(options, body, print, tmp_path, ("mixed", {"seed": 20}))

    assert report.anomalies == {}
    # Rows expire in one of the tables; the judges know in which, and which.
    assert 0 < report.figures["rows_in_clickhouse"] <= report.figures["rows"]
    assert report.figures["rows_behind_views"] > 0
    assert report.figures["rows_aborted"] > 0
    assert sum(report.figures["faults"].values()) >= FAULTS
    assert command_of(tmp_path / "history.jsonl") == ("mixed", {"seed": 20})
    journal = journal_file.read(tmp_path / journal_file.FILE)
    assert replay.audited(journal).anomalies == [], "the verifier says so as well"
    assert all(replay.named(journal, at) for at in replay.some(journal, 20))


@pytest.mark.long  # as one of `python -m tests.chaos controls`
def test_a_campaign_without_a_guard_is_red(tmp_path: Path) -> None:
    """Relays that read what was aborted: the judges see it, and the history says so."""

    def body(campaign: Campaign) -> None:
        campaigns.mixed(campaign, 5.0, (), 1.0)

    options = Options(seed=21, members=1, without="read_committed", patience=PATIENCE)
    report = run(options, body, print, tmp_path)

    assert any("aborted rows" in anomaly for anomaly in report.anomalies), report
    assert "aborted rows" in (tmp_path / "history.jsonl").read_text(encoding="utf-8")
