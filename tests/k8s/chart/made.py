"""All files of k8s/chart, made of the kustomize base, its overlays and its monitoring."""

from __future__ import annotations

import tempfile
from pathlib import Path

from relay.version import __version__
from tests.k8s.built import K8S, overlay, with_components
from tests.k8s.chart import values
from tests.k8s.chart.objects import Templates

CHART = K8S / "chart"
_MADE = "# Made of k8s/base by `python -m tests.k8s.chart`: change that, and run it again.\n"
_COMMENT = "{{- /* Made of k8s/base by `python -m tests.k8s.chart`: change that. */ -}}\n"
_CHART = f"""\
{_MADE}apiVersion: v2
name: block-relay
description: Rows of many tables from one Kafka topic into ClickHouse, each exactly once.
type: application
version: {__version__}
appVersion: {__version__}
"""
_NOTES = """\
The programs of block-relay are in namespace {{ .Release.Namespace }}.

  kubectl --namespace {{ .Release.Namespace }} rollout status statefulset relay
  kubectl --namespace {{ .Release.Namespace }} exec deploy/verifier -- \\
    relay status /etc/relay/config/relay.toml
"""


def files() -> dict[str, str]:
    """Return text by path within the chart."""
    with tempfile.TemporaryDirectory() as directory:
        whole = with_components(Path(directory), "monitoring")
    text = values.values(overlay("small"))
    templates = {
        f"templates/{name}": _COMMENT + template
        for name, template in Templates(whole).files().items()
    }
    return {
        "Chart.yaml": _CHART,
        "values.yaml": text,
        "values-large.yaml": values.values_large(overlay("large")),
        "values.schema.json": values.schema(text),
        "templates/NOTES.txt": _NOTES,
        **templates,
    }


def there() -> dict[str, str]:
    """Return the files as they are."""
    return {
        str(path.relative_to(CHART)): path.read_text(encoding="utf-8")
        for path in CHART.rglob("*")
        if path.is_file()
    }


def write() -> list[str]:
    """Make the directory as `files` says; return what changed."""
    wanted, found = files(), there()
    for name in found.keys() - wanted.keys():
        (CHART / name).unlink()
    for name, text in wanted.items():
        path = CHART / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return sorted(
        name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)
    )
