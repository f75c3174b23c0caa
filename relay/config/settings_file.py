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

from relay.config import checks
from relay.config import secrets as config_secrets
from relay.config.pipelines import PIPELINES, Pipeline, PipelineTable, conflicts, split
from relay.config.secrets import CLUSTERS, Problem, Table, holder, put
from relay.config.settings import ELSEWHERE, Settings
from relay.config.validation import dotted, validate
from relay.errors import ConfigError
from relay.program.plural import several


def load(
    path: Path, overrides: Mapping[str, object] | None = None, pipeline: str | None = None
) -> Settings:
    """Return the settings of a file's one app, or of one of its pipelines; as `pipelines`.

    Raises:
        ConfigError: as `pipelines`; also where the file has several and none is named.
    """
    parts = pipelines(path, overrides, pipeline)
    if len(parts) > 1:
        choices = ", ".join(part.name for part in parts)
        raise ConfigError(
            f"{path} has several pipelines ({choices}), and this command needs one of them",
            "name one with --pipeline",
        )
    return parts[0].settings


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
    problems = dict.fromkeys([*wrong, *conflicts(parts)])
    made = []
    for part in _select(path, parts, pipeline):
        settings, of_part = _make(part, path.parent, overrides or {})
        problems.update(dict.fromkeys((part.key(key), reason) for key, reason in of_part))
        if settings is not None:
            made.append(Pipeline(part.name, settings))
    if problems:
        raise _error(path, list(problems), overrides or {})
    return tuple(made)


def _error(path: Path, problems: list[Problem], overrides: Mapping[str, object]) -> ConfigError:
    """The error of all problems; it names those of the command line by their option."""
    lines, in_file = [], False
    for key_path, reason in problems:
        key = dotted(key_path)
        overridden = key in overrides
        in_file |= not overridden
        lines.append(f"  {f'--{key_path[-1]} ({key})' if overridden else key}: {reason}")
    where, next_step = "on the command line", "give another value for the option"
    if in_file:
        where = f"in {path}"
        next_step = f"correct the settings, then run `relay config check {path}`"
    return ConfigError("\n".join([f"{several(len(lines), 'problem')} {where}:", *lines]), next_step)


def _select(path: Path, parts: list[PipelineTable], pipeline: str | None) -> list[PipelineTable]:
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


def _make(
    part: PipelineTable, directory: Path, overrides: Mapping[str, object]
) -> tuple[Settings | None, list[Problem]]:
    secrets = config_secrets.take(part.data, os.environ)
    for key, value in overrides.items():
        put(part.data, tuple(key.split(".")), value)
    _resolve_paths(part.data, directory)
    settings, problems = check(part.data)
    return settings, problems + secrets


def check(data: Table) -> tuple[Settings | None, list[Problem]]:
    """Return the settings (None if they cannot be made) and one problem for each wrong key."""
    settings, reasons = validate(data)
    for path, reason in checks.find(data):
        reasons.setdefault(path, []).append(reason)
    if settings is not None and not reasons:
        reasons = {path: [reason] for path, reason in checks.try_clients(settings)}
    return settings, [(path, " or ".join(dict.fromkeys(of))) for path, of in reasons.items()]


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
            if not isinstance(value, str) or (keys is not None and key not in keys):
                continue
            if value != checks.PROBE and not ELSEWHERE.match(value):
                table[key] = str(directory.absolute() / value)
