"""What `relay verify` prints of a deep audit."""

from __future__ import annotations

import json

import pytest

from relay.cli import verifytext
from relay.verify.anomaly import Anomaly, Kind
from relay.verify.audit import Audit


def stuck(table: str, partition: int = 3) -> Anomaly:
    return Anomaly(Kind.STUCK, partition, 0, -1, "block b is not touched", table)


def audited(*anomalies: Anomaly) -> Audit:
    audit = Audit("a", "source", 1.0)
    audit.anomalies += anomalies
    audit.not_judged.append("shop.events: TTL day deletes rows")
    return audit


def test_an_anomaly_names_only_places_that_it_has() -> None:
    assert str(stuck("d.t")) == "stuck: partition 3: block b is not touched"
    assert str(stuck("d.t", -1)) == "stuck: block b is not touched"
    assert str(Anomaly(Kind.GAP, 0, 7, 9, "x")) == "gap: partition 0, n=7: x"


def test_many_anomalies_are_summed_up_by_table(capsys: pytest.CaptureFixture[str]) -> None:
    many = [stuck("shop.a")] * 9 + [Anomaly(Kind.GAP, 0, 0, -1, "x", "shop.b")]
    verifytext.conclude(audited(*many), 1.0, as_json=False)
    assert "anomalies: shop" not in capsys.readouterr().err
    verifytext.conclude(audited(*many, stuck("shop.b")), 1.0, as_json=False)
    said = capsys.readouterr().err
    assert "anomalies: shop.a: 9 stuck\n" in said
    assert "anomalies: shop.b: 1 gap, 1 stuck\n" in said


def test_what_is_not_judged_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    verifytext.conclude(audited(), 1.0, "east", as_json=False)
    assert "not judged: east: shop.events: TTL day deletes rows" in capsys.readouterr().err
    verifytext.conclude(audited(), 1.0, "east", as_json=True)
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert first == {"not_judged": "shop.events: TTL day deletes rows", "pipeline": "east"}
