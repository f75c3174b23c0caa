"""Prometheus' own tool, which says when an alert fires; Debian has it in its package prometheus."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.metrics.alerts.case import SCRAPE_SECONDS, Case, State

_APT = shutil.which("apt-get"), shutil.which("dpkg")


def program(directory: Path) -> str:
    """Where it is, put into the directory if need be; empty: it is not here, and cannot be had."""
    found = shutil.which("promtool")
    if found or None in _APT:
        return found or ""
    try:
        _run("apt-get", "download", "prometheus", directory=directory)
        (package,) = directory.glob("*.deb")
        _run("dpkg", "-x", str(package), ".", directory=directory)
    except (subprocess.SubprocessError, ValueError):
        return ""
    return str(directory / "usr/bin/promtool")


def _run(*command: str, directory: Path) -> None:
    subprocess.run(command, cwd=directory, check=True, capture_output=True, timeout=120)


def refused(tool: str, directory: Path, rules: str) -> str:
    """What the tool has against a file of rules; empty: it takes them.

    Args:
        tool: as `program` gives it.
        directory: for its files.
        rules: the file's text.
    """
    (directory / "rules.yaml").write_text(rules, encoding="utf-8")
    return _told(tool, directory, "check", "rules", "--lint=all", "--lint-fatal", "rules.yaml")


def otherwise(tool: str, directory: Path, rules: str, cases: Mapping[str, Case]) -> str:
    """What the tool, started once, says of the cases that go another way; empty: none does.

    Args:
        tool: as `program` gives it.
        directory: for its files.
        rules: the text of a file of rules.
        cases: by a name, which stands in what the tool says of it.
    """
    tests = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": f"{SCRAPE_SECONDS}s",
        "tests": [_test(name, case) for name, case in cases.items()],
    }
    (directory / "rules.yaml").write_text(rules, encoding="utf-8")
    (directory / "tests.yaml").write_text(yaml.safe_dump(tests), encoding="utf-8")
    return _told(tool, directory, "test", "rules", "tests.yaml")


def _test(name: str, case: Case) -> dict[str, Any]:
    """Two questions at each of the case's moments: whether the alert fires, whether it waits."""
    return {
        "interval": f"{SCRAPE_SECONDS}s",
        "input_series": [{"series": one, "values": of} for one, of in case.series.items()],
        "promql_expr_test": [
            {
                # The tool repeats the expression, comment included, but not a test's name.
                "expr": f"count(ALERTS{{{case.selects},alertstate='{asked.value}'}}) > bool 0"
                f" # {name}",
                "eval_time": f"{round(minutes * 60)}s",
                "exp_samples": [{"labels": "{}", "value": 1}] if asked is state else [],
            }
            for minutes, state in case.moments.items()
            for asked in (State.FIRES, State.WAITS)
        ],
    }


def _told(tool: str, directory: Path, *arguments: str) -> str:
    """What it says, but empty lines; empty: it is content."""
    told = subprocess.run(
        [tool, *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    lines = (told.stdout + told.stderr).splitlines()
    return "" if told.returncode == 0 else "\n".join(filter(None, lines))
