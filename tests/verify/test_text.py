"""What `relay verify` prints of a deep audit."""

from __future__ import annotations

import json

import pytest

from relay.cli.output import verify
from relay.operate.verify.audit import Audit
from relay.operate.verify.judge.anomaly import Anomaly, AnomalyKind
from relay.program.plural import several


def late(table: str, partition: int = 3) -> Anomaly:
    return Anomaly(AnomalyKind.LATE, partition, 0, -1, "block b is not touched", table)


def audited(*anomalies: Anomaly) -> Audit:
    audit = Audit("a", "source", 1.0)
    audit.anomalies += anomalies
    audit.not_judged.append("shop.events: TTL day deletes rows")
    return audit


def test_an_anomaly_names_only_places_that_it_has() -> None:
    assert str(late("d.t")) == "late: partition 3: block b is not touched"
    assert str(late("d.t", -1)) == "late: block b is not touched"
    assert str(Anomaly(AnomalyKind.GAP, 0, 7, 9, "x")) == "gap: partition 0, n=7: x"


def test_many_anomalies_are_summed_up_by_table(capsys: pytest.CaptureFixture[str]) -> None:
    many = [late("shop.a")] * 9 + [Anomaly(AnomalyKind.GAP, 0, 0, -1, "x", "shop.b")]
    verify.conclude(audited(*many), 1.0, as_json=False)
    assert "anomalies: shop" not in capsys.readouterr().err
    verify.conclude(audited(*many, late("shop.b")), 1.0, as_json=False)
    said = capsys.readouterr().err
    assert "anomalies: shop.a: 9 late\n" in said
    assert "anomalies: shop.b: 1 gap, 1 late\n" in said


def test_what_is_not_judged_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    verify.conclude(audited(), 1.0, "east", as_json=False)
    assert "not judged: east: shop.events: TTL day deletes rows" in capsys.readouterr().err
    verify.conclude(audited(), 1.0, "east", as_json=True)
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert first == {"not_judged": "shop.events: TTL day deletes rows", "pipeline": "east"}


def test_of_many_alike_the_first_few_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """942 lines of one kind hid the two that mattered."""
    few = verify.Few()
    many = [late("shop.a")] * 940 + [Anomaly(AnomalyKind.GAP, 0, 0, -1, "x", "shop.b")] * 2
    for anomaly in many:
        few.say(anomaly)
    verify.conclude(audited(*many), 1.0, as_json=False, hidden=few.hidden)
    lines = capsys.readouterr().err.splitlines()
    assert sum(line.startswith("anomaly: late") for line in lines) == 5
    assert sum(line.startswith("anomaly: gap") for line in lines) == 2
    assert "anomalies: shop.a: 940 late" in lines
    assert "anomalies: 935 more are not shown one by one: --all or --json shows them" in lines


@pytest.mark.parametrize("number", [0, 1, 5])
def test_few_are_shown_all(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    few = verify.Few()
    for _ in range(number):
        few.say(late("shop.a"))
    verify.conclude(audited(), 1.0, as_json=False, hidden=few.hidden)
    heard = capsys.readouterr().err
    assert heard.count("anomaly: late") == number
    assert "not shown" not in heard


def test_all_are_shown_where_that_is_asked_for() -> None:
    few = verify.Few(every=True)
    assert all(few.shows(late("shop.a")) for _ in range(100))
    assert few.hidden == 0


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 errors"), (1, "1 error"), (2, "2 errors"), (1_204, "1,204 errors")]
)
def test_one_is_one(number: int, text: str) -> None:
    assert several(number, "error") == text
