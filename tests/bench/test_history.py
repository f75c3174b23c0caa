"""Runs that are remembered: which compare, and what is worse."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from relay.errors import ConfigError
from tests.bench import history, report
from tests.bench.figures import Figure

MACHINE = {"cpu": "one", "cores": 2, "memory_gib": 24.0, "load_before": 0.1}


def _run(value: float, bench: str = "freshness", **differs: Any) -> history.Entry:
    machine, parameters = {**MACHINE, **differs.get("machine", {})}, differs.get("parameters", {})
    figures = [Figure("p50", value, "s", "lower"), Figure("rate", value, "rows/s", "higher")]
    return history.entry(bench, parameters, machine, {"python": "3"}, figures)


def test_a_history_compares_runs_of_one_kind(tmp_path: Path) -> None:
    """Median of same bench, parameters and machine; the load of the moment is no kind."""
    file = tmp_path / "history.jsonl"
    assert history.read(file) == []
    for run in (
        *(_run(1.0), _run(2.0, machine={"load_before": 9.0}), _run(9.0)),
        *(_run(50.0, machine={"cores": 64}), _run(60.0, parameters={"rate": 1})),
        _run(70.0, bench="endtoend"),
    ):
        history.append(file, run)
    assert history.medians(history.read(file), _run(0.0)) == {"p50": 2.0, "rate": 2.0}
    others = _run(0.0, machine={"cores": 8})
    assert history.medians(history.read(file), others) == {}


def test_worse_is_more_than_a_fifth_on_the_bad_side() -> None:
    """A fifth is allowed; better by any amount is no regression, nor is what only explains."""
    for better, bad, just, good in (("lower", 12.1, 12.0, 1.0), ("higher", 7.9, 8.0, 99.0)):
        assert history.worse(Figure("f", bad, "", better), 10.0)
        assert not history.worse(Figure("f", just, "", better), 10.0)
        assert not history.worse(Figure("f", good, "", better), 10.0)
    assert not history.worse(Figure("f", 99.0, ""), 10.0)
    assert not history.worse(Figure("f", 99.0, "", "lower"), None)


@pytest.mark.parametrize("line", ["no json", "[]", '{"bench": "relay"}'])
def test_a_history_that_is_none_is_refused(tmp_path: Path, line: str) -> None:
    """Before the run: with file and line."""
    file = tmp_path / "history.jsonl"
    file.write_text(json.dumps(_run(1.0)) + "\n" + line + "\n")
    with pytest.raises(ConfigError, match=r"history\.jsonl, line 2"):
        history.read(file)


def test_the_report_marks_what_is_missed_and_what_is_worse(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each mark stands in the row of its figure, and in no other."""
    of = [
        Figure("p50", 1.5, "s", "lower", 1.0),
        Figure("p99", 1.5, "s", "lower", 2.0),
        Figure("rate", 500.0, "rows/s", "higher"),
    ]
    before = {"p50": 1.4, "p99": 1.0, "rate": 510.0}
    run = _run(1.0)
    report.show_figures(of, run, before, as_json=False)
    shown = capsys.readouterr().out.splitlines()
    marks = {
        name: set(re.findall("MISSED|WORSE", line))
        for name in ("p50", "p99", "rate")
        for line in shown
        if f" {name} " in line
    }
    assert marks == {"p50": {"MISSED"}, "p99": {"WORSE"}, "rate": set()}
    report.show_figures(of, run, before, as_json=True)
    told = json.loads(capsys.readouterr().out)["figures"]
    assert [(one["held"], one["worse"], one["before"]) for one in told] == [
        (False, False, 1.4),
        (True, True, 1.0),
        (None, False, 510.0),
    ]
