"""Every kind of finding is caused here by facts, shows the value, and names what mends it."""

from __future__ import annotations

import pytest

from relay.operate.doctor.findings import KINDS, Finding, Severity, exit_status, report, worst_first
from tests.doctor.cases import CASES
from tests.doctor.healthy import clickhouse, codes, kafka, of_clickhouse, of_kafka, settings


def test_healthy_servers_give_no_finding() -> None:
    assert of_kafka(kafka()) == []
    assert of_clickhouse(clickhouse()) == []


def test_every_kind_has_a_case() -> None:
    assert CASES.keys() == KINDS.keys()


@pytest.mark.parametrize("code", CASES)
def test_its_facts_cause_it_and_nothing_else(code: str) -> None:
    """With severity and reason of its kind, the offending value, and the command."""
    case = CASES[code]
    findings = case.findings()
    assert codes(findings) == {code, *case.beside}
    ours = [finding for finding in findings if finding.code == code]
    assert any(case.shows in one.what and case.mended_by in one.mend for one in ours), ours
    for one in ours:
        assert (one.severity, one.why) == KINDS[code]
        assert one.why


def test_reasons_are_for_people() -> None:
    """Codes are words with hyphens; a reason is no sentence of its own and does not end as one."""
    for code, kind in KINDS.items():
        assert code.replace("-", "").isalpha()
        assert code == code.lower()
        assert len(kind.why) > 10
        assert not kind.why.endswith(".")


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ([], 0),
        (["unasked", "async-insert"], 0),
        (["unasked", "ttl"], 8),
        (["ttl", "window-zero"], 1),
        (["window-zero", "clickhouse-refused"], 5),
        (["window-zero", "clickhouse-refused", "kafka-away"], 4),
    ],
)
def test_the_worst_decides_the_exit_status(given: list[str], status: int) -> None:
    assert exit_status([report(code, "x") for code in given]) == status


def test_errors_come_first_and_nothing_twice() -> None:
    given = [report("unasked", "a"), report("ttl", "b"), report("window-zero", "c")]
    assert worst_first([*given, *given]) == given[::-1]


def test_an_unknown_kind_is_no_finding() -> None:
    """Negative control: a judge cannot make up a kind that has no case."""
    with pytest.raises(KeyError):
        report("made-up", "x")


def test_for_programs_a_finding_is_text_by_name() -> None:
    assert report("ttl", "a", "b").as_json() == {
        "severity": "warning",
        "code": "ttl",
        "what": "a",
        "why": KINDS["ttl"].why,
        "mend": "b",
    }
    assert Finding(Severity.NOTE, "x", "a", "b", "c").as_json()["severity"] == "note"


def test_settings_of_the_cases_are_valid() -> None:
    """Negative control: the healthy settings are the product's, checked as a file's are."""
    assert settings().loader.block_column == "_block"
