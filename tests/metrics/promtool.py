"""Prometheus' own tool, which says when an alert fires; Debian has it in its package prometheus."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

RULES = Path(__file__).resolve().parents[2] / "k8s/components/monitoring/prometheus-rules.yaml"
SCRAPE_SECONDS = 15
"""As k8s/components/monitoring/service-monitor.yaml has it."""
_APT = shutil.which("apt-get"), shutil.which("dpkg")


@functools.cache
def program() -> str:
    """Where it is; empty: it is not here, and cannot be had."""
    found = shutil.which("promtool")
    if found or None in _APT:
        return found or ""
    directory = Path(tempfile.mkdtemp(prefix="promtool-"))
    try:
        _ran("apt-get", "download", "prometheus", directory=directory)
        (package,) = directory.glob("*.deb")
        _ran("dpkg", "-x", str(package), ".", directory=directory)
    except (subprocess.SubprocessError, ValueError):
        return ""
    return str(directory / "usr/bin/promtool")


def _ran(*command: str, directory: Path) -> None:
    subprocess.run(command, cwd=directory, check=True, capture_output=True, timeout=120)


def firing(directory: Path, series: Mapping[str, str], alert: str, minutes: float) -> str:
    """What the tool says, at that time, of the alert that should fire; empty: it fires.

    Args:
        directory: for its files.
        series: a time series to its values, as promtool writes them, one for each scrape.
        alert: its name, and labels after a brace, as `RelayDown{app="shop"}`; with `!` before it:
            that must not fire.
        minutes: after the first scrape.
    """
    spec = yaml.safe_load(RULES.read_text(encoding="utf-8"))["spec"]
    (directory / "rules.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")
    name, _, labels = alert.removeprefix("!").partition("{")
    also = f",{labels.removesuffix('}')}" if labels else ""
    asked = f'count(ALERTS{{alertname=~"{name}",alertstate="firing"{also}}}) > bool 0'
    expected = [] if alert.startswith("!") else [{"labels": "{}", "value": 1}]
    test: dict[str, Any] = {
        "interval": f"{SCRAPE_SECONDS}s",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "promql_expr_test": [
            {"expr": asked, "eval_time": f"{round(minutes * 60)}s", "exp_samples": expected}
        ],
    }
    tests = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": f"{SCRAPE_SECONDS}s",
        "tests": [test],
    }
    (directory / "tests.yaml").write_text(yaml.safe_dump(tests), encoding="utf-8")
    told = subprocess.run(
        [program(), "test", "rules", "tests.yaml"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return "" if told.returncode == 0 else told.stdout + told.stderr
