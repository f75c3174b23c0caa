"""What the subcommands of `loader` share: the configuration file, lines beside the output."""

from __future__ import annotations

from pathlib import Path

import click

CONFIG = click.argument("path", metavar="CONFIG", type=click.Path(path_type=Path))


def say(text: str) -> None:
    """A line for people, beside the output."""
    click.echo(f"loader: {text}", err=True)
