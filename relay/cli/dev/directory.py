"""Defines the option of all `relay dev` commands that names the directory."""

from __future__ import annotations

from pathlib import Path

import click

directory_option = click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".relay-dev"),
    show_default=True,
    help="Directory of data, logs and pid files.",
)
