"""What the subcommands of `loader` share: the configuration file, lines beside the output."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Protocol

import click

from relay.log import is_json

CONFIG = click.argument("path", metavar="CONFIG", type=click.Path(path_type=Path))

log = logging.getLogger("loader")


class Say(Protocol):
    """Tells something to whoever runs the loader."""

    def __call__(self, text: str, **fields: object) -> None:
        """`text` for people; `fields`, the same for machines."""


def say(text: str, **fields: object) -> None:
    """A line for people, beside the output; as an object with `fields` where logs are JSON."""
    if is_json():
        log.info(text, extra=fields)
    else:
        click.echo(f"loader: {text}", err=True)
