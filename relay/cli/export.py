"""`relay export`: prints or writes the rules, dashboard and manifests of the package."""

from __future__ import annotations

from pathlib import Path

import click

from relay.cli.named_files import copy_tree
from relay.errors import ConfigError, MissingTool
from relay.program import shared_files
from relay.program.command import WholeGroup

RULES = "k8s/components/monitoring/prometheus-rules.yaml"


@click.group(cls=WholeGroup)
def export() -> None:
    """Print alert rules and a dashboard for other programs, write Kubernetes manifests.

    \b
    relay export alerts > /etc/prometheus/rules/block-relay.yaml
    relay export dashboard > block-relay.json
    relay export kubernetes k8s
    """


@export.command()
@click.option(
    "--kubernetes", is_flag=True, help="Print a PrometheusRule for the Prometheus operator."
)
def alerts(*, kubernetes: bool) -> None:
    """Print the alert rules as a file for Prometheus' rule_files.

    \b
    relay export alerts > /etc/prometheus/rules/block-relay.yaml
    """
    text = _file(RULES).read_text(encoding="utf-8")
    click.echo(text if kubernetes else rule_file(text), nl=False)


@export.command()
def dashboard() -> None:
    """Print the Grafana dashboard for import; it shows any number of apps.

    \b
    relay export dashboard > block-relay.json
    """
    path = _file("k8s/components/monitoring/grafana-dashboard.json")
    click.echo(path.read_text(encoding="utf-8"), nl=False)


@export.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--force",
    is_flag=True,
    help="Write into a directory that has files, and overwrite those of the same name.",
)
def kubernetes(directory: Path, *, force: bool) -> None:
    """Write the Kubernetes manifests and the image's Dockerfile to DIRECTORY.

    They are a kustomize base with overlays, and a Helm chart; README.md says how to use them.

    \b
    relay export kubernetes k8s
    """
    manifests = _file("k8s")
    if directory.exists() and any(directory.iterdir()) and not force:
        raise ConfigError(
            f"{directory} already has files",
            "name another directory, or overwrite those of the same name with --force",
        )
    copy_tree(manifests, directory, without="__pycache__")  # pip compiles what is Python in it
    click.echo(f"wrote {directory}; begin with {directory / 'README.md'}")


def rule_file(text: str) -> str:
    """Return a PrometheusRule's groups as a file for Prometheus itself, comments included.

    The last key of its YAML is `spec`, indented by two blanks.
    """
    lines = text.partition("spec:\n")[2].splitlines(keepends=True)
    return "".join(line.removeprefix("  ") for line in lines)


def _file(path: str) -> Path:
    file = shared_files.path_of(path)
    if file is None:
        raise MissingTool(
            f"{path} is not part of this installation", "install the wheel of block-relay"
        )
    return file
