"""Arguments and options of `relay dead`, as the values that they mean."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import click

from relay import names
from relay.dead.letter import Place
from relay.dead.selection import instant_ms


class _Parsed(click.ParamType[Any]):
    """An argument in a form of its own; what is wrong with it is said as click says it."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._parse(value) if isinstance(value, str) else value
        except (ValueError, re.error) as problem:
            self.fail(str(problem), param, ctx)


def _table(text: str) -> str:
    if not names.is_table_name(text):
        raise ValueError(f"not a table name: {text!r}")
    return text


PLACE = _Parsed("partition:offset", Place.parse)
TABLE = _Parsed("database.table", _table)
INSTANT = _Parsed("time", lambda text: instant_ms(text, time.time_ns() // 1_000_000))


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
            "--reason", type=_Parsed("regex", re.compile), help="Whose reason contains this."
        ),
        click.option("--table", help='database.table as the header named it; "" for none.'),
    ):
        command = option(command)
    return command
