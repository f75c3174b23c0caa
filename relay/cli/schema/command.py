"""`relay schema`: shows the row messages of the tables, for producers."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from google.protobuf.descriptor import Descriptor
from rich.table import Table

from relay import names
from relay.cli.options import config_argument, settings_of
from relay.cli.schema.seed import seed
from relay.config.settings import Settings
from relay.errors import ConfigError
from relay.kafka.topics import Topics
from relay.produce.codecs import row_messages, table_codecs
from relay.program.command import WholeGroup
from relay.program.console import console_of
from relay.program.json_output import as_json_text, print_json
from relay.program.spelling import did_you_mean_table
from relay.records_pb2 import TableSchema
from relay.rows.row_codec import RowCodec
from relay.schema.compatibility import CompatibilityFinding, findings
from relay.schema.evolution import (
    changes,
    live_columns,
    needs_value,
    proto_text,
    unsupported_columns,
)
from relay.schema.proto_directory import KEPT, place
from relay.schema.protoc import row_message
from relay.schema.registry import Registry, read_to_its_end

_WIDTH = 140  # columns, where there is no terminal to ask
_table = click.argument("table", metavar="DATABASE.TABLE")
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.group(cls=WholeGroup)
def schema() -> None:
    """Show the protobuf row message of each table: field numbers, and the .proto for producers.

    \b
    relay schema proto shop.orders > orders.proto
    relay schema check orders.proto
    """


schema.add_command(seed)


@schema.command()
@config_argument
@click.argument("tables", metavar="[DATABASE.TABLE]...", nargs=-1)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Write a file for every table of ClickHouse that may get rows (see source.tables).",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write one file per table, DIR/DATABASE/TABLE/row.proto; the directory is the package, as "
    "buf expects. Required with --all and with several tables.",
)
@click.option(
    "--force",
    is_flag=True,
    help="With --out: also overwrite files that somebody wrote or edited. Without --force the "
    "command replaces only files that it wrote itself, and names the others.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per table.")
def proto(
    tables: tuple[str, ...],
    out: Path | None,
    config_file: Path,
    *,
    every: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Print the .proto of a table's row message, or write those of many, for producers.

    The command registers a table that the registry does not know yet, or that changed: its field
    numbers then stay for ever. With --out it names each table whose rows cannot be carried and
    each file that it keeps, goes on with the other tables, and ends with status 2.

    \b
    relay schema proto shop.orders > orders.proto
    relay schema proto --all --out proto
    relay schema proto shop.orders shop.countries --out proto
    """
    if bool(tables) == every:
        raise click.UsageError("Name the tables, or give --all; not both.")
    if out is not None:
        _write_all(settings_of(config_file), tables, out, force=force, as_json=as_json)
        return
    if every or len(tables) > 1 or force:
        raise click.UsageError("--all, --force and several tables need --out DIR.")
    (table,) = tables
    current = table_codecs(settings_of(config_file))(table).schema
    text = proto_text(current)
    if as_json:
        text = as_json_text({"table": table, "version": current.version, "proto": text}) + "\n"
    click.echo(text, nl=False)


def _write_all(
    settings: Settings, tables: Collection[str], out: Path, *, force: bool, as_json: bool
) -> None:
    """Write the files of these tables, of all if none is named; print the outcome of each."""
    failures = 0
    messages = row_messages(settings, tables or None)
    for table, versions in messages.items():
        path, why = "", ""
        if isinstance(versions, str):
            outcome, why = "refused", versions
        else:
            placed = place(out, versions, force=force)
            path, outcome = str(placed.path), placed.outcome
            if outcome == KEPT:
                why = (
                    "somebody wrote or edited it: it differs from every version of the table; "
                    "--force overwrites it"
                )
        failures += bool(why)
        if as_json:
            print_json({"table": table, "outcome": outcome, "path": path, "why": why})
        else:
            name = f"{path} ({table})" if path else table
            click.echo(f"{outcome:9}  {name}{': ' if why else ''}{why}")
    if not messages:
        click.echo("no table may receive rows", err=True)
    if failures:
        raise ConfigError(
            f"{failures} of {len(messages)} tables have no up-to-date file",
            "read the lines above; source.tables limits which tables --all means",
        )


@schema.command("ls")
@config_argument
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per table.")
def list_schemas(config_file: Path, *, as_json: bool) -> None:
    """List the tables in the schema registry.

    \b
    relay schema ls
    """
    registry = _read_registry(config_file)
    schemas = [
        _describe(version) for version in map(registry.current, registry.tables()) if version
    ]
    if as_json:
        for entry in schemas:
            print_json(entry)
        return
    if not schemas:
        click.echo("no table has a schema in this app yet", err=True)
    width = max((len(entry["table"]) for entry in schemas), default=0)
    for entry in schemas:
        live = sum(not column["dropped"] for column in entry["columns"])
        problems = "".join(f"  ! {problem}" for problem in entry["problems"])
        click.echo(
            f"{entry['table']:{width}}  version {entry['version']:<3}  {live:3} columns  "
            f"since {entry['since']}{problems}"
        )


@schema.command()
@config_argument
@_table
@click.option("--version", type=int, help="Version to show. Default: the current one.")
@_json
def show(table: str, version: int | None, config_file: Path, *, as_json: bool) -> None:
    """Show a table's fields as the registry has them: numbers, columns, types, and what is gone.

    \b
    relay schema show shop.orders
    relay schema show shop.orders --version 1 --json
    """
    described = _describe(_version_of(_read_registry(config_file), table, version))
    if as_json:
        print_json(described)
        return
    click.echo(
        f"{table}, version {described['version']}, since {described['since']}, "
        f"table {described['uuid'] or 'without UUID'}"
    )
    view = Table("field", "column", "type", "")
    for column in described["columns"]:
        state = "dropped or changed: reserved" if column["dropped"] else column["default_kind"]
        view.add_row(str(column["number"]), column["name"], column["type"], state)
    console_of(_WIDTH).print(view)
    for problem in described["problems"]:
        click.echo(f"! {problem}")


@schema.command()
@config_argument
@_table
@click.option("--from", "before", type=int, help="Older version. Default: the one before --to.")
@click.option("--to", "after", type=int, help="Newer version. Default: the current one.")
@_json
def diff(
    table: str, before: int | None, after: int | None, config_file: Path, *, as_json: bool
) -> None:
    """Show what changed in a table's row message, by default with its last change.

    \b
    relay schema diff shop.orders
    relay schema diff shop.orders --from 1 --to 4 --json
    """
    registry = _read_registry(config_file)
    new = _version_of(registry, table, after)
    # Version 0 is that of a table before its first: it has no columns.
    first = TableSchema(table=table, uuid=new.uuid)
    old_number = new.version - 1 if before is None else before
    old = _version_of(registry, table, old_number) if old_number else first
    if as_json:
        listed = [change._asdict() for change in changes(old, new)]
        print_json({"table": table, "from": old.version, "to": new.version, "changes": listed})
        return
    click.echo(f"{table}, version {old.version} to {new.version}")
    for kind, column, was, now, number in changes(old, new):
        arrow = f"{was} → {now}" if was and now else was or now
        click.echo(f"  {kind:10} {column or '(the table)'}  {arrow}  {number or ''}".rstrip())


@schema.command()
@config_argument
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--table", help="Table to compare with, DATABASE.TABLE. Default: the file's package.")
@click.option(
    "--message", help="Name of the row message. Default: the one that RowBatch repeats, else Row."
)
@_json
@click.pass_context
def check(
    context: click.Context,
    file: Path,
    table: str | None,
    message: str | None,
    config_file: Path,
    *,
    as_json: bool,
) -> None:
    """Check whether relays can read what a producer writes with FILE.proto; exit 1 if not.

    The command compares field numbers, types and names with the registry, and names each problem:
    fields that the table does not have, other types, reserved numbers, swapped names.

    \b
    relay schema check orders.proto
    relay schema check all.proto --table shop.orders --message Order --json
    """
    written = row_message(file, message)
    table = table or written.file.package
    if not names.is_table_name(table):
        raise ConfigError(
            f"{file}: package {table!r} is not database.table", "name the table with --table"
        )
    current = _version_of(_read_registry(config_file), table, None)
    compared = _compare(written, current)
    problems = [finding for finding in compared if finding.problem]
    if as_json:
        about = {
            "table": table,
            "version": current.version,
            "compatible": not problems,
            "problems": [_as_json(finding) for finding in problems],
            "notes": [_as_json(finding) for finding in compared if not finding.problem],
        }
        print_json(about)
    else:
        for finding in compared:
            kind = "problem" if finding.problem else "note"
            click.echo(f"{kind}: {finding.field}: {finding.what}")
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        verdict = count if problems else "compatible"
        click.echo(f"{file} and {table}, version {current.version}: {verdict}")
    context.exit(1 if problems else 0)


def _compare(written: Descriptor, current: TableSchema) -> list[CompatibilityFinding]:
    live = live_columns(current)
    carried = {column.number for column in live}
    gone = {c.number: f"{c.name} {c.type}" for c in current.columns if c.number not in carried}
    needed = {column.number: column.name for column in live if needs_value(column)}
    read: Any = RowCodec(current).message_class.DESCRIPTOR
    return findings(written, read, gone, needed)


def _as_json(finding: CompatibilityFinding) -> dict[str, Any]:
    fields = ("kind", "field", "number", "what")
    return {name: getattr(finding, name) for name in fields}


def _read_registry(config_file: Path) -> Registry:
    """Return the registry, read to its end and closed."""
    settings = settings_of(config_file)
    # Where credentials are wrong, a consumer only finds nobody; this one hears why.
    Topics(settings).describe(names.schemas_topic(settings.app))
    return read_to_its_end(settings.kafka, settings.app)


def _version_of(registry: Registry, table: str, version: int | None) -> TableSchema:
    """Return one version of a table's schema, the current one where none is asked for."""
    current = registry.current(table)
    if current is None:
        hint = did_you_mean_table(table, registry.tables())
        raise ConfigError(
            f"the schema registry has no table {table}{hint}",
            "`relay schema ls` lists those it has, `relay schema proto` adds one",
        )
    schema = current if version is None else registry.version(table, version)
    if schema is None:
        raise ConfigError(
            f"{table} has no version {version}", f"name a version from 1 to {current.version}"
        )
    return schema


def _describe(current: TableSchema) -> dict[str, Any]:
    """Return a schema as `--json` shows it."""
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
                "default_kind": column.default_kind,
                "in_row_message": column.number in carried,
            }
            for column in current.columns
        ],
        "problems": unsupported_columns(current),
    }
