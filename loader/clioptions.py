"""What the subcommands of `loader` share: the configuration file, lines beside the output."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from relay import config
from relay.cli_support import chosen_pipeline, pipeline_option
from relay.log import is_json, is_text

if TYPE_CHECKING:
    from relay.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger("loader")


def config_argument(command: F) -> F:
    """The file and --pipeline; the function gets `path`."""
    argument = click.argument("path", metavar="CONFIG", type=click.Path(path_type=Path))
    return argument(pipeline_option(command))


def settings_of(path: Path) -> Settings:
    """Of the file's one app, or of the pipeline that --pipeline names.

    Raises:
        ConfigError: as relay.config.load.
    """
    return config.load(path, pipeline=chosen_pipeline())


class Say(Protocol):
    """Tells something to whoever runs the loader."""

    def __call__(self, text: str, level: int = logging.INFO, **fields: object) -> None:
        """`text` for people, of this level of logging; `fields`, the same for machines."""


def say(text: str, level: int = logging.INFO, **fields: object) -> None:
    """A line for people, beside the output; as an object with `fields` where logs are JSON.

    With time and level where there is a log, which a run has, and no command that only answers.
    """
    if is_json():
        log.log(level, text, extra=fields)
    elif is_text():
        log.log(level, text)
    else:
        click.echo(f"loader: {text}", err=True)
