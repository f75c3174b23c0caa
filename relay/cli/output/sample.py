"""Prints a sample of the source topic: which messages of each table are good, and which not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from relay.program.console import console_of
from relay.program.json_output import print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relay.operate.doctor.judge.sample import OfTable

_WIDTH = 140  # columns, where there is no terminal to ask


def print_sample(seen: Sequence[OfTable], pipeline: str, *, as_json: bool) -> None:
    """Print what was seen of each table; nothing where nothing was looked at.

    Args:
        seen: by table.
        pipeline: its name, where the file has several.
        as_json: one JSON object per line and table.
    """
    which = {"pipeline": pipeline} if pipeline else {}
    if as_json:
        for one in seen:
            print_json({"sample": one.as_json(), **which})
        return
    if not seen:
        return
    shown = Table("table", "good", "bad", "messages, reason, and the place of one", show_lines=True)
    shown.columns[0].no_wrap = True
    for one in seen:
        why = [
            f"{problem.messages:,}: {problem.reason} ({problem.partition}:{problem.offset})"
            for problem in one.largest()
        ]
        name = one.table or "(none)"
        shown.add_row(name, f"{one.good:,}", f"{one.bad:,}", escape("\n".join(why)))
    console_of(_WIDTH).print(shown)
