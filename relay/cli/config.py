"""`relay config`: writes an example of the configuration file, checks one, shows one.

Receives a path, gives text; everything it knows about settings it reads from the
model in relay.config.settings, so that it can't fall behind. Shows no secret.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import click
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from relay.config import settings_file as reader
from relay.config.secrets import FROM_ENVIRONMENT, USERS_FROM_ENVIRONMENT, KeyPath, is_secret
from relay.config.settings import Settings
from relay.config.validation import dotted
from relay.program.command import WholeGroup, chosen_pipeline, pipeline_option

HIDDEN = "(hidden)"
_PIPELINES = (
    "# several topics, clusters or shards in one file: each name here is a pipeline, an app of its",
    '# own ("shop-east"), whose settings are all of the above with these over them',
    "# [pipelines]",
    '# east.kafka.bootstrap = "east:9092"',
    '# west.kafka.bootstrap = "west:9092"',
)
_WIDTH = 88


@click.group(cls=WholeGroup)
def config() -> None:
    """Write, check and show the configuration file."""


_FILE = click.argument("file", type=click.Path(path_type=Path))


@config.command("init")
def init() -> None:
    """Print an example with every setting, its meaning and its default.

    \b
    relay config init > relay.toml
    """
    click.echo(example())


@config.command("check")
@_FILE
def check(file: Path) -> None:
    """Check FILE; list everything that is wrong in it, and exit 2 if anything is."""
    for name, settings in reader.pipelines(file):
        which = f", pipeline {name}" if name else ""
        click.echo(f"{file}: ok{which}, app {settings.app!r}")
        if settings.source.start is None:
            click.echo(
                "note: source.start is not set; for partitions without a committed offset, start "
                "with `relay run --start`"
            )


@config.command("show")
@_FILE
@pipeline_option
@click.option("--json", "as_json", is_flag=True, help="As JSON: only keys and values.")
def show(file: Path, *, as_json: bool) -> None:
    """Print all settings of FILE with defaults and meanings; secrets hidden.

    Of each pipeline, or of one, where the file has several.
    """
    every = reader.pipelines(file, pipeline=chosen_pipeline())
    if as_json:
        values = {name: _plain(settings, ()) for name, settings in every}
        shown = {"pipelines": values} if every[0].name else values[""]
        click.echo(json.dumps(shown, indent=2))
        return
    for name, settings in every:
        head = ["", f"# ---- pipeline {name}", ""] if name else []
        click.echo("\n".join([*head, *_shown(settings, ())]))


def example() -> str:
    """Return a configuration file as text; settings that have a default are commented out."""
    head = [
        "# Settings of one app, for `relay run` and `loader run`. Commented lines are the",
        "# defaults. Relative paths count from this file. Secrets never stand in it: a file is",
        '# named, or a variable of the environment as "${NAME}"; these win over both:',
        *(f"#   {name}" for name in (*FROM_ENVIRONMENT, *USERS_FROM_ENVIRONMENT)),
    ]
    return "\n".join([*head, "", *_example(Settings, ()), "", *_PIPELINES])


def _example(model: type[BaseModel], path: KeyPath) -> Iterator[str]:
    """Values before tables, as TOML demands."""
    for name, field in model.model_fields.items():
        if _section(field) is not None or get_origin(field.annotation) is dict:
            continue
        yield from _meaning(field)
        instance = field.examples[0] if field.examples else None
        if field.is_required():
            yield f"{name} = {_toml(instance)}"
        elif instance is not None:
            yield f"# {name} = {_toml(instance)}  # an example, not the default"
        else:
            yield f"# {name} = {_toml(_plain(field.get_default(), (*path, name)))}"
    for name, field in model.model_fields.items():
        section, title = _section(field), dotted((*path, name))
        if section is not None:
            yield from ("", f"# {_first_line(section)}", f"[{title}]")
            yield from _example(section, (*path, name))
        elif get_origin(field.annotation) is dict:
            instance = field.examples[0] if field.examples else {}
            yield from ("", *_meaning(field), f"# [{title}]")
            yield from (f"# {line}" for line in _entries(instance))


def _shown(section: BaseModel, path: KeyPath) -> Iterator[str]:
    """Every value of a section, then its sections."""
    model = type(section)
    values = {name: getattr(section, name) for name in model.model_fields}
    for name, value in values.items():
        if isinstance(value, BaseModel | dict):
            continue
        field = model.model_fields[name]
        yield from _meaning(field)
        origin = "" if name in section.model_fields_set else "  # default"
        text = _toml(_plain(value, (*path, name)))
        yield f"{name} = {text}{origin}" if text else f"# {name} is not set"
    for name, value in values.items():
        here = (*path, name)
        if isinstance(value, BaseModel):
            yield from ("", f"# {_first_line(type(value))}", f"[{dotted(here)}]")
            yield from _shown(value, here)
        elif isinstance(value, dict):
            yield from ("", *_meaning(model.model_fields[name]), f"[{dotted(here)}]")
            yield from _entries(_plain(value, here))


def _entries(table: dict[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        yield f"{dotted((key,))} = {_toml(value)}"


def _plain(value: Any, path: KeyPath) -> Any:
    """Settings as what JSON knows; secrets hidden, empty ones shown to be empty."""
    if isinstance(value, BaseModel):
        names = type(value).model_fields
        return {name: _plain(getattr(value, name), (*path, name)) for name in names}
    if isinstance(value, dict):
        return {key: _plain(item, (*path, key)) for key, item in value.items()}
    secret = value.get_secret_value() if isinstance(value, SecretStr) else value
    if isinstance(value, SecretStr) or is_secret(path):
        return HIDDEN if secret else ""
    return str(value) if isinstance(value, Path) else value


def _toml(value: Any) -> str:
    """A value in TOML; empty for None, which TOML can't say."""
    if value is None:
        return ""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:_}"
    if isinstance(value, float):
        return repr(value)
    # TOML's basic strings know JSON's escapes.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _section(field: FieldInfo) -> type[BaseModel] | None:
    annotation = field.annotation
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return None


def _first_line(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip().splitlines()[0]


def _meaning(field: FieldInfo) -> Iterator[str]:
    """The description and the values allowed, as comment lines."""
    text = field.description or ""
    choices = [arg for arg in get_args(field.annotation) if get_origin(arg) or isinstance(arg, str)]
    words = [c for arg in choices for c in (get_args(arg) or (arg,))]
    if words and all(isinstance(word, str) for word in words):
        text = f"{text}; " if text else ""
        text += "one of " + ", ".join(words)
    yield from textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ")
