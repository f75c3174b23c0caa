"""Dashboard and alert rules name only metrics that the programs have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from relay.cli.docs import docs
from tests.metrics.promql import EVERY, labels, samples, series

ROOT = Path(__file__).resolve().parents[2]


def unknown(expressions: Iterable[str]) -> list[str]:
    """Series and labels that no program has."""
    known = samples(EVERY)
    every = set().union(*known.values())
    # Prometheus adds these to whatever it scrapes.
    added = {"job", "instance", "pod", "namespace", "container", "service", "app"}
    found = []
    for expression in expressions:
        found += [name for name in series(expression) if name not in known]
        found += [name for name in labels(expression) if name not in every | added]
    return sorted(found)


def in_dashboard(node: Any) -> Iterator[str]:
    """Every query of it, and of its variables."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in {"expr", "definition"}:
                yield re.sub(r"^label_values\((.*), *\w+\)$", r"\1", value)
            else:
                yield from in_dashboard(value)
    elif isinstance(node, list):
        for value in node:
            yield from in_dashboard(value)


def dashboard() -> dict[str, Any]:
    text = (ROOT / "k8s/components/monitoring/grafana-dashboard.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def rules() -> list[dict[str, Any]]:
    text = (ROOT / "k8s/components/monitoring/prometheus-rules.yaml").read_text(encoding="utf-8")
    found = yaml.safe_load(text)
    assert (found["kind"], found["apiVersion"]) == ("PrometheusRule", "monitoring.coreos.com/v1")
    return [rule for group in found["spec"]["groups"] for rule in group["rules"]]


def test_the_dashboard_asks_only_for_what_there_is() -> None:
    """Every query of every panel; panels have titles, units and places that do not overlap."""
    found = dashboard()
    expressions = list(in_dashboard(found))
    assert len(expressions) >= 20
    assert unknown(expressions) == []
    asked = [one for one in expressions if one != "relay_info"]  # the variable's own query
    assert [one for one in asked if one.count('{app=~"$app"') != len(series(one))] == []
    assert [one["name"] for one in found["templating"]["list"]] == ["datasource", "app"]
    panels = [panel for panel in found["panels"] if panel["type"] != "row"]
    assert all(panel["title"] and panel["description"] for panel in panels)
    assert len({panel["id"] for panel in found["panels"]}) == len(found["panels"])
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in found["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_the_rules_ask_only_for_what_there_is() -> None:
    """Every alert has a severity, says what it means, and what to do."""
    assert unknown(rule["expr"] for rule in rules()) == []
    for rule in rules():
        assert rule["labels"]["severity"] in {"page", "ticket"}, rule["alert"]
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"]
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) >= 10


def without_a_page(annotations: Mapping[str, str]) -> bool:
    """Whether an alert's runbook is no section that `relay docs` prints."""
    words = annotations.get("runbook", "").split()
    if words[:2] != ["relay", "docs"] or "#" not in words[-1]:
        return True
    printed = CliRunner().invoke(docs, words[2:])
    return printed.exit_code != 0 or not printed.output.startswith("## ")


def test_every_alert_leads_to_its_section_of_troubleshooting() -> None:
    """With a negative control: no runbook, another program's, no such section."""
    assert [rule["alert"] for rule in rules() if without_a_page(rule["annotations"])] == []
    for runbook in ("", "relay docs troubleshooting", "man relay#x", "relay docs faq#nothing"):
        assert without_a_page({"runbook": runbook})


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("sum by (table) (rate(relay_rows_committed_total[5m]))", []),
        ("rate(relay_rows_comitted_total[5m]) > 3", ["relay_rows_comitted_total"]),
        ('relay_check{chek="fenced"} == 0', ["chek"]),
        ("sum by (tabel) (relay_buffer_bytes)", ["tabel"]),
        ("relay_poll_seconds > 1", ["relay_poll_seconds"]),
        ("histogram_quantile(0.9, sum by (le) (rate(relay_poll_seconds_bucket[5m])))", []),
    ],
)
def test_a_name_that_is_not_there_is_found(expression: str, found: list[str]) -> None:
    """Negative control: a typing error in a metric, in a label; a histogram without its part."""
    assert unknown([expression]) == found
