"""Takes secrets from the environment or from files, never from the configuration file itself.

Receives a file's raw data and the environment; puts in what the environment holds and says
which secrets stand in the file in plain. Values of secrets appear in no message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from relay.config import kafka_allowlist

FROM_ENVIRONMENT: Mapping[str, tuple[str, ...]] = {
    "RELAY_CLICKHOUSE_PASSWORD": ("clickhouse", "password"),
    "RELAY_KAFKA_SASL_PASSWORD": ("kafka", "client", "sasl.password"),
    "RELAY_KAFKA_SSL_KEY_PASSWORD": ("kafka", "client", "ssl.key.password"),
    "RELAY_SOURCE_KAFKA_SASL_PASSWORD": ("source", "kafka", "client", "sasl.password"),
    "RELAY_SOURCE_KAFKA_SSL_KEY_PASSWORD": ("source", "kafka", "client", "ssl.key.password"),
}
"""Environment variables that win over the file."""

USERS_FROM_ENVIRONMENT: Mapping[str, tuple[str, ...]] = {
    "RELAY_CLICKHOUSE_USER": ("clickhouse", "user"),
    "RELAY_KAFKA_SASL_USERNAME": ("kafka", "client", "sasl.username"),
    "RELAY_SOURCE_KAFKA_SASL_USERNAME": ("source", "kafka", "client", "sasl.username"),
}
"""Likewise; no secrets. Programs with different users can share one file."""

KeyPath = tuple[str | int, ...]
Table = dict[str, Any]
Problem = tuple[KeyPath, str]
"""A key, and why its value is wrong."""

CLUSTERS: tuple[tuple[str, ...], ...] = (("kafka",), ("source", "kafka"))
"""Tables that say how to reach the brokers of a cluster."""

_NAMED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def is_secret(path: KeyPath) -> bool:
    """Return whether the value at this key must never be shown."""
    clients = [(*cluster, "client") for cluster in CLUSTERS]
    return path in FROM_ENVIRONMENT.values() or (
        path[:-1] in clients and path[-1] in kafka_allowlist.SECRETS
    )


def take(data: Table, environment: Mapping[str, str]) -> list[Problem]:
    """Put the secrets of the environment into the data; return what is wrong.

    A secret in the data may be empty, or name a variable as `${NAME}`. What stands there in
    plain is a problem, unless one of FROM_ENVIRONMENT replaces it.
    """
    crosses = bool(value_at(data, ("source", "kafka", "bootstrap")))
    variables = {
        variable: path
        for variable, path in {**FROM_ENVIRONMENT, **USERS_FROM_ENVIRONMENT}.items()
        if environment.get(variable) and (path[0] != "source" or crosses)
    }
    for variable, path in variables.items():
        put(data, path, environment[variable])
        if variable in FROM_ENVIRONMENT:
            drop(data, _file_key(path))
    replaced = {path for variable, path in variables.items() if variable in FROM_ENVIRONMENT}
    problems: list[Problem] = []
    for path, table in _secrets(data):
        value = table[path[-1]]
        if path in replaced or not isinstance(value, str) or not value:
            continue
        named = _NAMED.fullmatch(value)
        if named is None:
            problems.append((path, _in_plain(path)))
        elif named[1] not in environment:
            problems.append((path, f"environment variable {named[1]} is not set"))
        else:
            table[path[-1]] = environment[named[1]]
    return problems


def put(data: Table, path: KeyPath, value: object) -> None:
    """Set data[path], making tables on the way; what is no table is left for the check."""
    table: Any = data
    for part in path[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            return
    table[path[-1]] = value


def holder(data: Table, path: KeyPath) -> Table | None:
    """Return the table that holds data[path], or would; None where there is no such table."""
    table: Any = data
    for part in path[:-1]:
        table = table.get(part) if isinstance(table, dict) else None
    return table if isinstance(table, dict) else None


def value_at(data: Table, path: tuple[str, ...]) -> Any:
    """Return data[path]; None where there is none."""
    return (holder(data, path) or {}).get(path[-1])


def drop(data: Table, path: KeyPath) -> None:
    """Take data[path] out, if it is there."""
    table = holder(data, path)
    if table is not None:
        table.pop(str(path[-1]), None)


def _file_key(path: tuple[str, ...]) -> tuple[str, ...]:
    """The key of the file that may hold this secret instead."""
    if path[0] == "clickhouse":
        return ("clickhouse", "password_file")
    return (*path[:-2], "client_files", path[-1])


def _secrets(data: Table) -> Iterator[tuple[tuple[str, ...], Table]]:
    """Keys of the secrets that the data holds, with the tables that hold them."""
    clickhouse = holder(data, ("clickhouse", "password")) or {}
    if "password" in clickhouse:
        yield ("clickhouse", "password"), clickhouse
    for cluster in CLUSTERS:
        client = holder(data, (*cluster, "client", "")) or {}
        for key in [key for key in client if key in kafka_allowlist.SECRETS]:
            yield (*cluster, "client", key), client


def _in_plain(path: tuple[str, ...]) -> str:
    *table, key = _file_key(path)
    file = ".".join((*table, f'"{key}"' if "." in key else key))
    return (
        f"this file must not contain a secret in plain text; name a file in {file}, or write "
        '"${NAME}" for an environment variable'
    )
