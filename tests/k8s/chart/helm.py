"""Helm itself, built from its Go module, and what it makes of the chart."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.k8s.built import Manifest

VERSION = "v3.20.2"
SOURCE = Path(__file__).with_name("program")
"""A Go module that names it and everything that it is built of."""
PROGRAM = Path.home() / ".cache" / "block-relay" / "helm" / VERSION / "helm"
needs_helm = pytest.mark.skipif(
    not PROGRAM.exists(),
    reason="there is no Helm: python -m tests.k8s.chart --helm builds it, in minutes",
)
_PACKAGE = "helm.sh/helm/v3/cmd/helm"


def build() -> None:
    """Make PROGRAM, if it is not there: some minutes, with Go 1.25 or newer.

    Flags and modules are those of tests.cluster's control plane, which has most of it compiled.
    """
    if PROGRAM.exists():
        return
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    command = ["nice", "-n", "10", "go", "build", "-trimpath", "-ldflags", "-s -w", "-o"]
    subprocess.run([*command, PROGRAM, _PACKAGE], cwd=SOURCE, check=True)


def run(
    *words: str | Path, home: Path, given: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it with a home of its own, so that it neither finds nor leaves anything.

    Args:
        words: its arguments.
        home: an empty directory, or one that it had before.
        given: its standard input.
    """
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), "HELM_CACHE_HOME": str(home)}
    return subprocess.run(
        [PROGRAM, *words],
        env=environment,
        input=given,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def rendered(
    chart: Path, home: Path, *options: str | Path, values: dict[str, Any] | None = None
) -> list[Manifest]:
    """Return the objects that it would install in namespace block-relay.

    Args:
        chart: its directory.
        home: as `run`.
        options: further ones of `helm template`.
        values: as a file of values.
    """
    words = ("template", "relay", chart, "--namespace", "block-relay", *options)
    given = None if values is None else yaml.safe_dump(values)
    done = run(*words, *(() if given is None else ("--values", "-")), home=home, given=given)
    assert done.returncode == 0, done.stderr
    return [found for found in yaml.safe_load_all(done.stdout) if found]
