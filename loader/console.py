"""Lines that a loader prints for people beside its output."""

from __future__ import annotations

import logging
from typing import Protocol

import click

from relay.log import is_json, is_text

log = logging.getLogger("loader")


class Say(Protocol):
    """Tells something to whoever runs the loader."""

    def __call__(self, text: str, level: int = logging.INFO, **fields: object) -> None:
        """`text` for people, of this level of logging; `fields`, the same for machines."""


def say(text: str, level: int = logging.INFO, **fields: object) -> None:
    """Print a line for people; as an object with `fields` where logs are JSON.

    The line has time and level where a log is set up, as a run does; commands that only answer
    print it bare.
    """
    if is_json():
        log.log(level, text, extra=fields)
    elif is_text():
        log.log(level, text)
    else:
        click.echo(f"loader: {text}", err=True)
