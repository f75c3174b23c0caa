"""Commands that show all pipelines of a file: one under the other, none hides another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from relay.cli import cli, doctor, status
from relay.errors import Unavailable
from relay.operate.doctor.findings import Finding, report
from relay.operate.view.facts import ConsumerGroup, LedgerFacts, StatusFacts
from relay.operate.view.journal_state import JournalState
from relay.operate.view.status import Screen, assemble
from relay.program.command import run_main
from tests.config.test_load import GOOD
from tests.config.test_pipelines import TWO


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "relay.toml"
    path.write_text(GOOD + TWO)
    return str(path)


class Looking:
    """In place of a look at servers; `away`: apps whose brokers do not answer."""

    away: tuple[str, ...] = ()

    def __init__(self, settings: Any, _records: int, *, lasting: bool) -> None:
        assert not lasting
        self._app = settings.app

    def screen(self) -> Screen:
        if self._app in self.away:
            raise Unavailable(f"the brokers of {self._app} are away", "wait")
        facts = StatusFacts(
            self._app, "rows", 0, False, ConsumerGroup("empty"), {}, LedgerFacts(), audited=0
        )
        return assemble(JournalState(), facts)

    def close(self) -> None:
        pass


def test_status_shows_all_and_names_what_is_away(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status.ask, "StatusReader", Looking)
    assert run_main(cli, "relay", ["status", config, "--json"]) == 0
    shown = [json.loads(line)["app"] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["shop-east", "shop-west"]
    assert run_main(cli, "relay", ["status", config, "--json", "--pipeline", "west"]) == 0
    assert json.loads(capsys.readouterr().out)["app"] == "shop-west"
    monkeypatch.setattr(Looking, "away", ("shop-east",))
    assert run_main(cli, "relay", ["status", config, "--json"]) == 4
    said = capsys.readouterr()
    assert json.loads(said.out)["app"] == "shop-west"
    assert "east: the brokers of shop-east are away" in said.err


def test_the_doctor_examines_each_and_the_worst_finding_counts(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    findings: dict[str, list[Finding]] = {
        "shop-east": [],
        "shop-west": [report("kafka-away", "nobody answers", "start it")],
    }
    monkeypatch.setattr(doctor.examine, "examine", lambda settings, _: findings[settings.app])
    ended = run_main(cli, "relay", ["doctor", config, "--json"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    totals = {one["pipeline"]: one["status"] for one in lines if "status" in one}
    assert totals == {"east": 0, "west": ended}
    assert ended != 0
    assert [one["pipeline"] for one in lines if "finding" in one] == ["west"]
    assert run_main(cli, "relay", ["doctor", config]) == ended
    text = capsys.readouterr().out
    assert text.index("# ---- pipeline east") < text.index("# ---- pipeline west")
    assert text.index("# ---- pipeline west") < text.index("kafka-away")
    assert run_main(cli, "relay", ["doctor", config, "--grants", "--role", "relay"]) == 0
    grants = capsys.readouterr().out
    assert grants.index("shop-east.journal") < grants.index("shop-west.journal")


def test_a_command_about_one_app_wants_its_name(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["journal", "tail"], ["blocks", "ls"], ["accept"]):
        assert run_main(cli, "relay", [*command, config]) == 2
        assert "several pipelines (east, west)" in capsys.readouterr().err
