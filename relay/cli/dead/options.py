"""Parses the arguments and options of `relay dead` into the values that they mean."""

from __future__ import annotations

import re
from collections.abc import Callable

import click

from relay.blocks.dead_letter import RecordPlace
from relay.cli.arguments import INSTANT, Parsed
from relay.schema.dead_reason import DeadKind

PLACE = Parsed("partition:offset", RecordPlace.parse)


def selecting(command: Callable[..., None]) -> Callable[..., None]:
    """Return the options that say which dead letters are meant."""
    for option in (
        click.option(
            "--partition",
            type=click.IntRange(min=0),
            help="Choose only messages of this source partition.",
        ),
        click.option(
            "--until",
            "until_ms",
            type=INSTANT,
            help="Choose only dead letters written before this time; same form as --since.",
        ),
        click.option(
            "--since",
            "since_ms",
            type=INSTANT,
            help="Choose only dead letters written since this time: ISO 8601 (UTC if it names no "
            "zone), or an age such as 2h or 7d.",
        ),
        click.option(
            "--kind",
            "kinds",
            type=click.Choice([kind.value for kind in DeadKind]),
            metavar="KIND",
            multiple=True,
            callback=lambda _context, _option, chosen: frozenset(map(DeadKind.read, chosen)),
            help="Choose only dead letters of this kind of reason, such as unknown-table; give "
            "the option again for more kinds.",
        ),
        click.option(
            "--reason",
            type=Parsed("regex", re.compile),
            help="Choose only dead letters whose reason matches.",
        ),
        click.option(
            "--table",
            help='Choose only dead letters whose header names this table; "" for no table.',
        ),
    ):
        command = option(command)
    return command
