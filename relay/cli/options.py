"""Options that several of `relay`'s subcommands have."""

from __future__ import annotations

from pathlib import Path

import click

config_option = click.option(
    "--config",
    "config_file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("relay.toml"),
    show_default=True,
    help="The app's configuration file.",
)

config_argument = click.argument(
    "config_file",
    metavar="CONFIG",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
