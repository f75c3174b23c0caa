"""`relay schema proto --out`: writes the files of many tables, and reports each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from relay.errors import ConfigError
from relay.produce.codecs import row_messages
from relay.program.json_output import print_json
from relay.schema.proto_directory import KEPT, place

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from relay.config.settings import Settings

REFUSED = "refused"


def write_all(
    settings: Settings, tables: Collection[str], out: Path, *, force: bool, as_json: bool
) -> None:
    """Write the files of these tables, or of all where none is named; print what became of each.

    Raises:
        ConfigError: at the end, where some have no file as it should be.
    """
    left = 0
    found = row_messages(settings, tables or None)
    for table, versions in found.items():
        path, why = "", ""
        if isinstance(versions, str):
            outcome, why = REFUSED, versions
        else:
            placed = place(out, versions, force=force)
            path, outcome = str(placed.path), placed.outcome
            if outcome == KEPT:
                why = (
                    "somebody wrote or edited it: it differs from every version of the table; "
                    "--force overwrites it"
                )
        left += bool(why)
        if as_json:
            told = {"table": table, "outcome": outcome, "path": path, "why": why}
            print_json(told)
        else:
            name = f"{path} ({table})" if path else table
            click.echo(f"{outcome:9}  {name}{': ' if why else ''}{why}")
    if not found:
        click.echo("no table may receive rows", err=True)
    if left:
        raise ConfigError(
            f"{left} of {len(found)} tables have no up-to-date file",
            "read the lines above; source.tables limits which tables --all means",
        )
