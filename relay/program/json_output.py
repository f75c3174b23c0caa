"""JSON that commands print for programs.

Where standard output is not UTF-8, as under a Latin-1 locale, what is not ASCII is escaped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable

import click

from relay.log import is_utf8


def print_json(value: object, *, indent: int | None = None) -> None:
    """Print a value as JSON, on one line if `indent`, in spaces, is not given."""
    click.echo(as_json_text(value, indent=indent))


def print_lines(lines: Iterable[object]) -> None:
    """Print each: a text as it is, anything else as JSON."""
    for line in lines:
        click.echo(line if isinstance(line, str) else as_json_text(line))


def as_json_text(value: object, *, indent: int | None = None) -> str:
    """Return a value as JSON that standard output prints as UTF-8, whatever its encoding is."""
    return json.dumps(value, indent=indent, ensure_ascii=not is_utf8(sys.stdout))
