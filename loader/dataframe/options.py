"""The options of `spark.read.format("relay")`. Receives them as text, gives checked values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from loader.dataframe.selection import BlockSelection
from relay import names
from relay.config import settings_file
from relay.config.settings import Settings
from relay.errors import ConfigError

PARTITION_BYTES = 64_000_000
"""Of rows as producers sent them: a consumer costs a second, a partition should be worth it."""
_KNOWN = frozenset(
    {"config", "pipeline", "app", "bootstrap", "table", "since", "until", "block", "metadata"}
    | {"partition_bytes"}
)


@dataclass(frozen=True)
class ReadOptions:
    """The options, checked."""

    settings: Settings
    wanted: BlockSelection
    metadata: bool
    partition_bytes: int


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """Return what the options say.

    Args:
        options: config (a path, with pipeline where it has several) or app and bootstrap; table;
            since, until, block, metadata, partition_bytes.

    Raises:
        ConfigError: an option is unknown, missing or of no use; or as
        relay.config.settings_file.load.
    """
    if unknown := sorted(options.keys() - _KNOWN):
        raise ConfigError(f"unknown option {unknown[0]}", f"known: {', '.join(sorted(_KNOWN))}")
    table = options.get("table", "")
    if not names.is_table_name(table):
        raise ConfigError(
            f"option table: {table!r} is not database.table", "name a table as database.table"
        )
    wanted = BlockSelection(
        table, _time(options, "since"), _time(options, "until"), options.get("block", "")
    )
    size = options.get("partition_bytes", str(PARTITION_BYTES))
    if not size.isdecimal() or not int(size):
        raise ConfigError(
            f"option partition_bytes: {size!r} is not a number above 0", "give a number of bytes"
        )
    metadata = options.get("metadata", "false").lower()
    if metadata not in {"true", "false"}:
        raise ConfigError(f"option metadata is {metadata!r}", "set it to true or false")
    return ReadOptions(_settings(options), wanted, metadata == "true", int(size))


def _settings(options: Mapping[str, str]) -> Settings:
    if "config" in options:
        return settings_file.load(Path(options["config"]), pipeline=options.get("pipeline"))
    if not {"app", "bootstrap"} <= options.keys():
        raise ConfigError(
            "the options do not say where the journal is",
            "give option config, or app and bootstrap",
        )
    # Nothing else of an app is asked for.
    return Settings.model_validate(
        {
            "app": options["app"],
            "kafka": {"bootstrap": options["bootstrap"]},
            "source": {"topic": "not-read"},
            "clickhouse": {"url": "http://not-asked"},
            "loader": {"checkpoint": "not-written"},
        }
    )


def _time(options: Mapping[str, str], name: str) -> int | None:
    """Return Unix milliseconds of an ISO 8601 time, which is UTC where it says nothing else."""
    if name not in options:
        return None
    try:
        time = datetime.fromisoformat(options[name])
    except ValueError as error:
        raise ConfigError(f"option {name}: {error}", "write 2026-11-21T20:00") from error
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
