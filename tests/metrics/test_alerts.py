"""Each alert fires in the case that it is for, and is silent just short of it, says promtool."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from loader.metrics import health as loader_health
from relay.cli.export import export
from relay.program import health as relay_health
from tests.metrics import promtool
from tests.metrics.alerts import flow, rows, trouble, well
from tests.metrics.alerts.case import Case, State, silent
from tests.metrics.promql import EVERY, Selector, parsed, samples, selectors

CASES: Mapping[str, Mapping[str, Case]] = {
    "block-relay.rows": rows.CASES,
    "block-relay.flow": flow.CASES,
    "block-relay.trouble": trouble.CASES,
}
"""By the name of the group of rules that they are about."""

Rule = Mapping[str, Any]


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Prometheus' own, fetched by the one process that runs these tests."""
    found = promtool.program(tmp_path_factory.mktemp("promtool"))
    if not found:
        pytest.skip("needs promtool, of Debian's package prometheus")
    return found


@cache
def exported() -> str:
    """The file that a user gives to Prometheus."""
    printed = CliRunner().invoke(export, ["alerts"])
    assert printed.exit_code == 0, printed.output
    return printed.output


def groups() -> Mapping[str, list[Rule]]:
    return {group["name"]: group["rules"] for group in yaml.safe_load(exported())["groups"]}


def rules() -> list[Rule]:
    return [rule for group in groups().values() for rule in group]


def unfed(case: Case, expression: str) -> list[Selector]:
    """What the expression asks for, and the case has no series of."""
    given = [parsed(one) for one in case.series]
    return [one for one in selectors(expression) if not any(one.takes(*of) for of in given)]


def lacking(rule: Rule, cases: Iterable[Case]) -> Iterator[str]:
    """In which states no case shows the rule.

    Silence counts for the whole rule, and where all that it asks for was scraped.
    """
    shown = {
        state
        for case in cases
        if case.rule == rule["alert"]
        for state in case.moments.values()
        if state is not State.SILENT or not (case.labels or unfed(case, rule["expr"]))
    }
    wanted = set(State) if "for" in rule else {State.FIRES, State.SILENT}
    return (f"{rule['alert']}: no case is {state.value}" for state in wanted - shown)


def test_every_rule_has_a_case_in_which_it_fires_and_one_in_which_it_is_silent() -> None:
    """A rule with a `for` also waits in one, which would fire if it went on."""
    lacks = [
        text
        for group, of_group in groups().items()
        for rule in of_group
        for text in lacking(rule, CASES.get(group, {}).values())
    ]
    assert lacks == []


def test_a_rule_without_a_case_is_named() -> None:
    """Negative control: no case, none in which it is silent, and silence with nothing scraped."""
    new = {"alert": "New", "expr": 'up == 0 or relay_check{check="poll"} == 0'}
    of_flow = flow.CASES.values()
    assert sorted(lacking(new, of_flow)) == ["New: no case is firing", "New: no case is silent"]
    known = {**new, "alert": "RelayNotAlive"}
    assert list(lacking(known, of_flow)) == ["RelayNotAlive: no case is silent"]
    for other in ('relay_check{check="assigned"}', 'relay_check{check="poll"}'):
        empty = silent({"up": "1x80", other: "1x80"}, "New", 5)
        assert ("New: no case is silent" in lacking(new, [empty])) == ("assigned" in other)
    narrow = silent({"up": "1x80", 'relay_check{check="poll"}': "1x80"}, 'New{app="shop"}', 5)
    assert "New: no case is silent" in lacking(new, [narrow])


def test_a_case_has_series_that_a_program_has() -> None:
    """With what Prometheus adds; else an alert would fire in a case that cannot be."""
    known, added = samples(EVERY), {"app", "instance", "pod"}
    every = {"all is well": well.CASE} | rows.CASES | flow.CASES | trouble.CASES
    for name, case in every.items():
        for metric, labels in map(parsed, case.series):
            assert metric in known, name
            assert set(labels) <= known[metric] | added, name


def test_where_all_is_well_every_rule_has_its_series() -> None:
    assert [rule["alert"] for rule in rules() if unfed(well.CASE, rule["expr"])] == []


@pytest.mark.parametrize("group", CASES)
def test_the_alerts_do_as_every_case_says(group: str, tmp_path: Path, tool: str) -> None:
    """Of the group's rules alone, which takes a third of the time of all."""
    of_group = yaml.safe_dump({"groups": [{"name": group, "rules": groups()[group]}]})
    told = promtool.otherwise(tool, tmp_path, of_group, CASES[group])
    assert not told, told


def test_nothing_fires_while_all_is_well(tmp_path: Path, tool: str) -> None:
    told = promtool.otherwise(tool, tmp_path, exported(), {"all is well": well.CASE})
    assert not told, told


def test_an_alert_that_does_otherwise_is_found(tmp_path: Path, tool: str) -> None:
    """Negative control: a case of each state is told to be in each of the others."""
    right = trouble.CASES["INSERTs fail"], trouble.CASES["some INSERTs fail"]
    turned = {
        f"{before.value} at {minutes}, not {state.value}": replace(case, moments={minutes: state})
        for case in right
        for minutes, before in case.moments.items()
        for state in set(State) - {before}
    }
    assert len(turned) == len(State) * (len(State) - 1)
    told = promtool.otherwise(tool, tmp_path, exported(), turned)
    assert [name for name in turned if f'# {name}"' not in told] == []


def test_prometheus_takes_the_rules_that_are_exported(tmp_path: Path, tool: str) -> None:
    told = promtool.refused(tool, tmp_path, exported())
    assert not told, told


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("sum by (app, kind) (", "sum by (app, kind) "), ("for: 5m", "for: 5 minutes")],
)
def test_a_broken_rule_is_refused(right: str, wrong: str, tmp_path: Path, tool: str) -> None:
    """Negative control: a bracket that is missing, a time that Prometheus cannot read."""
    assert right in exported()
    assert "FAILED" in promtool.refused(tool, tmp_path, exported().replace(right, wrong, 1))


def test_who_stands_still_is_told_by_every_check_of_health() -> None:
    """All of /healthz but `fenced`: that relay ends at once, which RelayTwice tells."""
    relay = relay_health.liveness(
        relay_health.RelayHealth(now=1, beat_at=1), relay_health.RelayHealthLimits(1, 1, 1)
    )
    loader = loader_health.liveness(
        loader_health.LoaderHealth(now=1, heard_at=1), loader_health.LoaderHealthLimits(1, 1, 1)
    )
    by_name = {rule["alert"]: rule["expr"] for rule in rules()}
    for checks, alert in ((relay, "RelayNotAlive"), (loader, "LoaderNotAlive")):
        (asked,) = selectors(by_name[alert])
        names = {check.check for check in checks} - {"fenced"}
        assert {name for name in names if not asked.takes(asked.name, {"check": name})} == set()


def test_every_rule_says_which_app_it_is_about() -> None:
    """Two apps under one Prometheus are two; a sum over both would be about neither."""
    for rule in rules():
        groupings = re.findall(r"\bby \(([^)]*)\)", rule["expr"])
        assert groupings, rule["alert"]
        assert all("app" in labels.split(", ") for labels in groupings), rule["alert"]
        assert "$labels.app" in rule["annotations"]["summary"], rule["alert"]
