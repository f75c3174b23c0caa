"""What the subcommands of `loader` share: the configuration file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from relay.config import settings_file
from relay.program.command import chosen_pipeline, pipeline_option

if TYPE_CHECKING:
    from relay.config.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])


def config_argument(command: F) -> F:
    """Return the file and --pipeline; the function gets `path`."""
    argument = click.argument("path", metavar="CONFIG", type=click.Path(path_type=Path))
    return argument(pipeline_option(command))


def settings_of(path: Path) -> Settings:
    """Return the settings of the file's one app, or of the pipeline that --pipeline names.

    Raises:
        ConfigError: as relay.config.settings_file.load.
    """
    return settings_file.load(path, pipeline=chosen_pipeline())
