"""`relay schema`: the row messages of the tables, for producers and for a look at them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from relay import config
from relay.codecs import table_codecs
from relay.records_pb2 import TableSchema
from relay.registry import Registry
from relay.schema import live_columns, proto_text, unsupported_columns

_config_option = click.option(
    "--config",
    "config_file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("relay.toml"),
    show_default=True,
    help="The app's configuration file.",
)


@click.group()
def schema() -> None:
    """Row messages of the tables: field numbers, and the .proto for producers."""


@schema.command()
@click.argument("table", metavar="DATABASE.TABLE")
@_config_option
def proto(table: str, config_file: Path) -> None:
    """Print the .proto of a table's row message, for producers in any language.

    A table that the registry does not know yet, or that changed, gets its field
    numbers now; they stay for ever.
    """
    click.echo(proto_text(table_codecs(config.load(config_file))(table).schema), nl=False)


@schema.command("ls")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line and table.")
@_config_option
def list_schemas(config_file: Path, *, as_json: bool) -> None:
    """List the tables in the schema registry, as it is now."""
    settings = config.load(config_file)
    registry = Registry(settings.kafka, settings.app)
    try:
        registry.catch_up()
    finally:
        registry.close()
    found = [
        _described(current) for table in registry.tables() if (current := registry.current(table))
    ]
    if as_json:
        for entry in found:
            click.echo(json.dumps(entry, ensure_ascii=False))
        return
    if not found:
        click.echo(f"no table has a schema in app {settings.app} yet", err=True)
    width = max((len(entry["table"]) for entry in found), default=0)
    for entry in found:
        live = sum(not column["dropped"] for column in entry["columns"])
        problems = "".join(f"  ! {problem}" for problem in entry["problems"])
        click.echo(
            f"{entry['table']:{width}}  version {entry['version']:<3}  {live:3} columns  "
            f"since {entry['since']}{problems}"
        )


def _described(current: TableSchema) -> dict[str, Any]:
    carried = {column.number for column in live_columns(current)}
    return {
        "table": current.table,
        "version": current.version,
        "uuid": current.uuid,
        "since": datetime.fromtimestamp(current.written_at_ms / 1000, UTC).isoformat(
            timespec="seconds"
        ),
        "columns": [
            {
                "name": column.name,
                "type": column.type,
                "number": column.number,
                "dropped": column.dropped,
                "in_row_message": column.number in carried,
            }
            for column in current.columns
        ],
        "problems": unsupported_columns(current),
    }
