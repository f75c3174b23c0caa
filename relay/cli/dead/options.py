"""Arguments and options of `relay dead`, as the values that they mean."""

from __future__ import annotations

import re
from collections.abc import Callable

import click

from relay.blocks.dead_letter import Place
from relay.cli.arguments import INSTANT, Parsed

PLACE = Parsed("partition:offset", Place.parse)


def selecting(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say which dead letters are meant."""
    for option in (
        click.option("--partition", type=click.IntRange(min=0), help="Of the source topic."),
        click.option("--until", "until_ms", type=INSTANT, help="Before this time; as --since."),
        click.option(
            "--since",
            "since_ms",
            type=INSTANT,
            help="Dead since then: ISO 8601 (UTC where it names no zone), or an age as 2h, 7d.",
        ),
        click.option(
            "--reason", type=Parsed("regex", re.compile), help="Whose reason contains this."
        ),
        click.option("--table", help='database.table as the header named it; "" for none.'),
    ):
        command = option(command)
    return command
