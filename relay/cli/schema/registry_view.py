"""Reads the schema registry to its end for `relay schema`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from relay import names
from relay.cli.options import settings_of
from relay.errors import ConfigError
from relay.kafka.topics import Topics
from relay.program.spelling import did_you_mean_table
from relay.records_pb2 import TableSchema
from relay.schema.evolution import live_columns, unsupported_columns
from relay.schema.registry import Registry, read_to_its_end


def read_registry(config_file: Path) -> Registry:
    """Read to its end, and closed: what it knows stays."""
    settings = settings_of(config_file)
    # Where credentials are wrong, a consumer only finds nobody; this one hears why.
    Topics(settings).describe(names.schemas_topic(settings.app))
    return read_to_its_end(settings.kafka, settings.app)


def version_of(registry: Registry, table: str, version: int | None) -> TableSchema:
    """Return one version of a table's schema, the current one where none is asked for.

    Raises:
        ConfigError: the registry does not have it.
    """
    current = registry.current(table)
    if current is None:
        hint = did_you_mean_table(table, registry.tables())
        raise ConfigError(
            f"the schema registry has no table {table}{hint}",
            "`relay schema ls` lists those it has, `relay schema proto` adds one",
        )
    found = current if version is None else registry.version(table, version)
    if found is None:
        raise ConfigError(
            f"{table} has no version {version}", f"name a version from 1 to {current.version}"
        )
    return found


def described_schema(current: TableSchema) -> dict[str, Any]:
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
