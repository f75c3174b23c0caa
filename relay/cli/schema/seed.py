"""`relay schema seed`: gives an app's registry field numbers that are in use already."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import click
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from google.protobuf.descriptor import Descriptor

from relay import names
from relay.cli.options import config_argument, run_option, settings_of
from relay.config import kafka_clients
from relay.config.settings import Settings
from relay.errors import ConfigError
from relay.kafka.admin import REQUEST_SECONDS
from relay.kafka.errors import answered
from relay.kafka.topics import Topics
from relay.program.config_argument import ConfiguredCommand
from relay.program.json_output import print_json
from relay.records_pb2 import TableSchema
from relay.rows.row_codec import RowCodec
from relay.schema.catalogue import Catalogue
from relay.schema.protoc import commented_row
from relay.schema.registry import Registry, Versions, read_to_its_end
from relay.schema.seeding import copied, lacking, left_out, numbered, of_files

_OVERTAKEN = (
    "another process wrote them meanwhile, and others of these tables may be written: look with "
    "`relay schema show`"
)


@click.command(cls=ConfiguredCommand)
@config_argument
@click.argument(
    "files",
    metavar="[FILE]...",
    nargs=-1,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.option(
    "--from-app",
    "old",
    metavar="APP",
    help="App on the same cluster whose registry is copied: every version of every table.",
)
@run_option("Write them. Without --run the command only prints what it would write.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per table.")
def seed(
    config_file: Path, files: tuple[Path, ...], old: str | None, *, do: bool, as_json: bool
) -> None:
    """Give a new app, before its first start, the field numbers that producers use already.

    Without it an app numbers a table's columns in their order of today. Messages that were
    written with other numbers, as after an ALTER TABLE or with another app's .proto, would then
    put values into wrong columns, and nothing would notice.

    Numbers come from another app's registry, or, where that is lost, from the .proto files that
    `relay schema proto` printed last for the producers. Nothing is written if the app's registry
    has other numbers already: those stay for ever. Run again after an interruption.

    \b
    relay schema seed --from-app shop --run
    relay schema seed orders.proto countries.proto --run
    Exit status: 0 done, or nothing left to do · 2 the registry has other numbers, or a file and
    its table do not fit.
    """
    if bool(files) == bool(old):
        raise click.UsageError("Give --from-app, or name .proto files; not both.")
    settings = settings_of(config_file)
    if old:
        schemas = _read_app(settings, old)
    else:
        schemas = of_files([(str(path), _read_file(settings, path)) for path in files])
    existing = _read_own(settings)
    missing = lacking(schemas, existing)
    if warning := left_out(schemas, existing, _tables_with_blocks(settings)):
        click.echo(warning, err=True)
    if do and missing:
        _write(settings, schemas, missing)
    written = {schema.table for schema in missing}
    for table, schema in {schema.table: schema for schema in schemas}.items():
        outcome = ("written" if do else "would be written") if table in written else "there"
        _print(schema, outcome, as_json=as_json)
    if not schemas:
        click.echo(f"no table has a schema in app {old}", err=True)
    elif written and not do:
        click.echo("nothing was written; --run does it", err=True)


def _read_app(settings: Settings, old: str) -> list[TableSchema]:
    if old == settings.app:
        raise ConfigError(f"--from-app is {old}, the app itself", "name the app before it")
    topic = names.schemas_topic(old)
    if Topics(settings).describe(topic) is None:
        raise ConfigError(
            f"{topic} does not exist on {settings.kafka.bootstrap}",
            "correct --from-app; where it is lost, name the producers' .proto files instead",
        )
    return copied(read_to_its_end(settings.kafka, old).versions)


def _read_file(settings: Settings, path: Path) -> TableSchema:
    written, comments = commented_row(path)
    table = written.file.package
    if not names.is_table_name(table):
        raise ConfigError(
            f"{path}: package {table!r} is not database.table", "write it as the file's package"
        )
    with contextlib.closing(Catalogue(settings.clickhouse)) as catalogue:
        definition = catalogue.read({table}).get(table)
    if definition is None:
        raise ConfigError(f"{path}: ClickHouse has no table {table}", "create the table first")
    block_column = settings.loader.block_column
    columns = [column for column in definition.columns if column.name != block_column]
    return numbered(table, definition.uuid, columns, written, _row_message, comments)


def _row_message(schema: TableSchema) -> Descriptor:
    message_class: Any = RowCodec(schema).message_class
    return cast("Descriptor", message_class.DESCRIPTOR)


def _read_own(settings: Settings) -> Versions:
    if Topics(settings).describe(names.schemas_topic(settings.app)) is None:
        return {}
    return read_to_its_end(settings.kafka, settings.app, anew=True).versions


def _tables_with_blocks(settings: Settings) -> set[str]:
    admin = AdminClient(kafka_clients.admin(settings.kafka))
    try:
        listed = admin.list_topics(timeout=REQUEST_SECONDS).topics
    except KafkaException as error:
        raise answered("list the topics", error.args[0], "") from error
    return {table for topic in listed if (table := names.table_of_topic(settings.app, topic))}


def _write(settings: Settings, schemas: Sequence[TableSchema], missing: list[TableSchema]) -> None:
    Topics(settings).ensure_by_key(names.schemas_topic(settings.app))
    with contextlib.closing(Registry(settings.kafka, settings.app, anew=True)) as registry:
        registry.propose(*missing)
        lacking(schemas, registry.versions, _OVERTAKEN)


def _print(schema: TableSchema, outcome: str, *, as_json: bool) -> None:
    columns = sum(not column.dropped for column in schema.columns)
    table, version = schema.table, schema.version
    if as_json:
        about = {"table": table, "version": version, "columns": columns, "outcome": outcome}
        print_json(about)
    else:
        click.echo(f"{outcome:16}  {table}, version {version}, {columns} columns")
