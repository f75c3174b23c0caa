"""Defines options that several of `relay`'s subcommands share, and reads their settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from relay.config import settings_file
from relay.config.pipelines import Pipeline
from relay.config.settings import Settings
from relay.errors import ConfigError
from relay.program.command import chosen_pipeline, pipeline_option
from relay.program.config_argument import config_file_argument

F = TypeVar("F", bound=Callable[..., Any])

directory_option = click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".relay-dev"),
    show_default=True,
    help="Directory of data, logs and pid files.",
)
"""Of all `relay dev` commands."""


def config_argument(command: F) -> F:
    """Add CONFIG, --config and --pipeline; the function gets `config_file`."""
    return config_file_argument(pipeline_option(command))


def run_option(text: str) -> Callable[[F], F]:
    """Add --run/--dry-run with this help text; the function gets `do`."""
    return click.option("--run/--dry-run", "do", default=False, help=text)


def settings_of(config_file: Path, overrides: Mapping[str, object] | None = None) -> Settings:
    """Return settings of the one app, or of --pipeline's; raise as settings_file.load does."""
    return settings_file.load(config_file, overrides, chosen_pipeline())


def within_one_cluster(settings: Settings, command: str, step: str) -> None:
    """Raise ConfigError where one transaction would have to cover the source's cluster, too."""
    if settings.crosses:
        raise ConfigError(
            f"`relay {command}` does not work if source.kafka names another cluster, because no "
            "transaction covers both clusters; nothing was changed",
            step,
        )


def pipelines_of(
    config_file: Path, overrides: Mapping[str, object] | None = None
) -> tuple[Pipeline, ...]:
    """Return all pipelines of the file, or --pipeline's; raise as settings_file.pipelines does."""
    return settings_file.pipelines(config_file, overrides, chosen_pipeline())
