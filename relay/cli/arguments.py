"""Parses arguments that have a form of their own into the values that they mean."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import click

from relay import names
from relay.operate.dead.selection import instant_ms


class Parsed(click.ParamType[Any]):
    """An argument with a form of its own; errors are click's, which name the option."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value that the text means."""
        try:
            return self._parse(value) if isinstance(value, str) else value
        except (ValueError, re.error) as problem:
            self.fail(str(problem), param, ctx)


def _table(text: str) -> str:
    if not names.is_table_name(text):
        raise ValueError(f"not a table name: {text!r}")
    return text


def _renaming(text: str) -> tuple[str, str]:
    of_file, equals, of_table = text.rpartition("=")
    if not (of_file and equals and of_table):
        raise ValueError(f"write FILE=TABLE, two names of a column, not {text!r}")
    return of_file, of_table


TABLE = Parsed("database.table", _table)
INSTANT = Parsed("time", lambda text: instant_ms(text, time.time_ns() // 1_000_000))
"""A time, or an age, as Unix milliseconds."""
RENAMING = Parsed("file=table", _renaming)
"""A column's name in a file, and in its table."""
