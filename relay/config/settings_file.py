"""Reads the TOML file into Settings, or lists every problem in it at once.

Receives a path, secrets from the environment and overrides from a command line; gives
checked relay.config.settings.Settings, one for each pipeline. Asks no server; values of secrets
appear in no message.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from relay.config import checks
from relay.config import secrets as config_secrets
from relay.config.pipelines import PIPELINES, Pipeline, PipelineTable, conflicts, split
from relay.config.secrets import CLUSTERS, KeyPath, Table, holder, put
from relay.config.settings import ELSEWHERE, Settings
from relay.config.validation import dotted, validate
from relay.errors import ConfigError
from relay.program.plural import several


class ConfigProblem(NamedTuple):
    """One thing that is wrong."""

    key: str
    """Dotted, as TOML writes it."""
    reason: str


def load(
    path: Path, overrides: Mapping[str, object] | None = None, pipeline: str | None = None
) -> Settings:
    """Return the settings of a file's one app, or of one of its pipelines; as `pipelines`.

    Raises:
        ConfigError: as `pipelines`; also where the file has several and none is named.
    """
    every = pipelines(path, overrides, pipeline)
    if len(every) > 1:
        choices = ", ".join(one.name for one in every)
        raise ConfigError(
            f"{path} has several pipelines ({choices}), and this command needs one of them",
            "name one with --pipeline",
        )
    return every[0].settings


def pipelines(
    path: Path, overrides: Mapping[str, object] | None = None, pipeline: str | None = None
) -> tuple[Pipeline, ...]:
    """Return the file's pipelines, in its order; one without a name where it has only one app.

    Relative paths in the file count from its directory, not from the process's.

    Args:
        path: of the TOML file.
        overrides: dotted keys (`relay.member`) to values of a command line; they win.
        pipeline: only this one. What another's settings are worth is not looked at then: its
            secrets may be on another machine.

    Raises:
        ConfigError: the file cannot be read, has no such pipeline, or everything that is wrong
            in it.
    """
    parts, wrong = split(_read(path))
    found = dict.fromkeys(wrong)
    found.update(dict.fromkeys(conflicts(parts)))
    made = []
    for part in _chosen(path, parts, pipeline):
        settings, problems = _part(part, path.parent, overrides or {})
        found.update(dict.fromkeys((part.key(at), reason) for at, reason in problems))
        if settings is not None:
            made.append(Pipeline(part.name, settings))
    if found:
        raise ConfigError(*_wrong(path, list(found), overrides or {}))
    return tuple(made)


def _wrong(
    path: Path, found: list[tuple[KeyPath, str]], given: Mapping[str, object]
) -> tuple[str, str]:
    """Every problem, those of the command line by their option; and what to do."""
    lines, of_file = [], 0
    for at, reason in found:
        key = dotted(at)
        option = f"--{at[-1]}" if key in given else ""
        of_file += not option
        lines.append(f"  {f'{option} ({key})' if option else key}: {reason}")
    where = f"in {path}" if of_file else "on the command line"
    head = f"{several(len(found), 'problem')} {where}:"
    next_step = (
        f"correct the settings, then run `relay config check {path}`"
        if of_file
        else "give another value for the option"
    )
    return "\n".join([head, *lines]), next_step


def check(data: Table) -> tuple[Settings | None, list[ConfigProblem]]:
    """Return the settings (None if they cannot be made) and every problem, in the data's order."""
    settings, found = _check(data)
    return settings, [ConfigProblem(dotted(at), reason) for at, reason in found]


def _chosen(path: Path, parts: list[PipelineTable], pipeline: str | None) -> list[PipelineTable]:
    if pipeline is None:
        return parts
    chosen = [part for part in parts if part.name == pipeline]
    if not chosen:
        choices = ", ".join(part.name for part in parts if part.name)
        there = f"it has {choices}" if choices else f"it has no table [{PIPELINES}]"
        raise ConfigError(
            f"{path} has no pipeline {pipeline!r}: {there}",
            "name one that the file has, or leave --pipeline out",
        )
    return chosen


def _part(
    part: PipelineTable, directory: Path, overrides: Mapping[str, object]
) -> tuple[Settings | None, list[tuple[KeyPath, str]]]:
    secrets = config_secrets.take(part.data, os.environ)
    for key, value in overrides.items():
        put(part.data, tuple(key.split(".")), value)
    _resolve_paths(part.data, directory)
    settings, problems = _check(part.data)
    return settings, problems + secrets


def _check(data: Table) -> tuple[Settings | None, list[tuple[KeyPath, str]]]:
    settings, found = validate(data)
    for path, reason in checks.find(data):
        found.setdefault(path, []).append(reason)
    if settings is not None and not found:
        found = {path: [reason] for path, reason in checks.try_clients(settings)}
    return settings, [
        (path, " or ".join(dict.fromkeys(reasons))) for path, reasons in found.items()
    ]


# ---- the file


def _read(path: Path) -> Table:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as missing:
        raise ConfigError(
            f"there is no file {path}",
            "name another as CONFIG, with --config or in RELAY_CONFIG, or write one: "
            f"`relay config init {path}`",
        ) from missing
    except OSError as refused:
        raise ConfigError(
            f"cannot read {path}: {refused.strerror}",
            "give this user the right to read the file, or name another",
        ) from refused
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as wrong:
        raise ConfigError(
            f"{path} is not TOML in UTF-8: {wrong}",
            "correct the line that the message names; https://toml.io explains the format",
        ) from wrong


def _resolve_paths(data: Table, directory: Path) -> None:
    clickhouse, loader = (data.get(name) for name in ("clickhouse", "loader"))
    for table, keys in (
        *((holder(data, (*at, "client", "")), checks.CLIENT_PATHS) for at in CLUSTERS),
        *((holder(data, (*at, "client_files", "")), None) for at in CLUSTERS),
        (clickhouse, ("password_file", "ca_file", "certificate_file", "key_file")),
        (loader, ("checkpoint",)),
    ):
        if not isinstance(table, dict):
            continue
        for key, value in table.items():
            if (keys is None or key in keys) and isinstance(value, str):
                table[key] = _from(directory, value)


def _from(directory: Path, value: str) -> str:
    """A path as the file means it."""
    if ELSEWHERE.match(value) or value == checks.PROBE:
        return value
    return str(directory.absolute() / value)
