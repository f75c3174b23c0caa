"""`relay config`: writes an example of the configuration file, checks one, shows one.

Receives a path, gives text; everything it knows about settings it reads from the
model in relay.config.settings, so that it can't fall behind. Shows no secret.
"""

from __future__ import annotations

import json
import sys
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

import click
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from relay.cli.named_files import write_file
from relay.cli.options import config_argument, directory_option
from relay.config import settings_file as reader
from relay.config.secrets import FROM_ENVIRONMENT, USERS_FROM_ENVIRONMENT, KeyPath, is_secret
from relay.config.server_settings import native_port
from relay.config.settings import Settings
from relay.config.validation import dotted
from relay.dev import stack
from relay.errors import ConfigError
from relay.program.command import WholeGroup, chosen_pipeline
from relay.program.config_argument import config_file_argument
from relay.program.json_output import print_json

HIDDEN = "(hidden)"
_PIPELINES = (
    "# several topics, clusters or shards in one file: each name here is a pipeline, an app of its",
    '# own ("shop-east"), whose settings are all of the above with these over them',
    "# [pipelines]",
    '# east.kafka.bootstrap = "east:9092"',
    '# west.kafka.bootstrap = "west:9092"',
)
USUAL: Mapping[str, object] = {
    "app": "shop",
    "kafka.bootstrap": "localhost:9092",
    "source.topic": "rows",
    "source.start": "earliest",
    "clickhouse.url": "http://localhost:8123",
    "loader.checkpoint": "checkpoint",
}
"""What `relay config init` writes where nobody says otherwise."""
_COMMENTS = {
    "app": "prefix of its topics, group and transactional ids",
    "source.topic": "`relay topic create` creates it",
    "source.start": "or latest: only messages written from now on",
    "loader.checkpoint": "a directory; if only it is lost, nothing is lost",
}
_WIDTH = 88


@click.group(cls=WholeGroup)
def config() -> None:
    """Write, check and show the configuration file."""


@config.command("init")
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--short", is_flag=True, help="Write only the settings that have no default.")
@click.option("--app", help="Name of the app: prefix of its topics, group and ids.")
@click.option("--bootstrap", help="Kafka brokers, as host:port separated by commas.")
@click.option("--topic", help="Name of the source topic.")
@click.option(
    "--clickhouse",
    "url",
    help="Address of ClickHouse's HTTP interface, for example http://host:8123.",
)
@click.option(
    "--start",
    type=click.Choice(["earliest", "latest"]),
    help="Where to begin in a partition that the app has never read: at its oldest message, or at "
    "messages written from now on.  [default: earliest]",
)
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@directory_option
def init(  # noqa: PLR0913 - one for each setting
    file: Path | None,
    app: str | None,
    bootstrap: str | None,
    topic: str | None,
    url: str | None,
    start: str | None,
    directory: Path,
    *,
    short: bool,
    force: bool,
) -> None:
    """Write a configuration to FILE, or print it: every setting, its meaning and its default.

    If --directory holds servers of `relay dev up`, the file gets their addresses. In a terminal
    the command asks for each required value that no option gives.

    \b
    relay config init relay.toml --short --app shop
    relay config init > relay.toml
    """
    options = {
        "app": app,
        "kafka.bootstrap": bootstrap,
        "source.topic": topic,
        "source.start": start,
        "clickhouse.url": url,
    }
    values: dict[str, object] = {**USUAL, **_dev_stack(directory)}
    values |= {key: value for key, value in options.items() if value is not None}
    if file is not None:
        if file.exists() and not force:
            raise ConfigError(
                f"{file} already exists", "name another file, or overwrite it with --force"
            )
        if in_terminal():
            for key in (key for key in options if options[key] is None):
                values[key] = click.prompt(key, default=values[key], err=True)
    text = shortest(values) if short else example(values)
    if file is None:
        click.echo(text)
        return
    write_file(file, f"{text}\n".encode())
    click.echo(f"wrote {file}; next: relay config check {file}", err=True)


def in_terminal() -> bool:
    """Return whether the command runs in a terminal, so that somebody can answer a question."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _dev_stack(directory: Path) -> dict[str, object]:
    """The settings that reach the stack of `relay dev` in a directory; none where there is none."""
    running = stack.status(directory)
    if running is None:
        return {}
    settings = tomllib.loads(running.config_hint)
    return {f"{name}.{key}": value for name in settings for key, value in settings[name].items()}


@config.command("check")
@config_file_argument
def check(config_file: Path) -> None:
    """Check the configuration; list everything that is wrong in it, and exit 2 if anything is."""
    for name, settings in reader.pipelines(config_file):
        which = f", pipeline {name}" if name else ""
        click.echo(f"{config_file}: ok{which}, app {settings.app!r}")
        if settings.source.start is None:
            click.echo(
                "note: source.start is not set; for partitions without a committed offset, start "
                "with `relay run --start`"
            )
        for url in settings.clickhouse.urls:
            if hint := native_port(url):
                click.echo(f"note: clickhouse.url {url}: {hint}")


@config.command("show")
@config_argument
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object: only keys and values."
)
def show(config_file: Path, *, as_json: bool) -> None:
    """Print every setting with its value and meaning; secrets are hidden.

    If the file has several pipelines, the command prints each of them, or one with --pipeline.
    """
    pipelines = reader.pipelines(config_file, pipeline=chosen_pipeline())
    if as_json:
        values = {name: _plain(settings, ()) for name, settings in pipelines}
        result = {"pipelines": values} if pipelines[0].name else values[""]
        print_json(result, indent=2)
        return
    for name, settings in pipelines:
        head = ["", f"# ---- pipeline {name}", ""] if name else []
        click.echo("\n".join([*head, *_shown(settings, ())]))


def shortest(values: Mapping[str, object]) -> str:
    """Return a configuration file as text that holds these values alone, by dotted key."""
    lines = ["# Every other setting has a default: `relay config show` prints all of them."]
    section = ""
    for key in sorted(values, key=_place):
        name, _, last = key.rpartition(".")
        if name != section:
            lines += ["", f"[{name}]"]
            section = name
        comment = f"  # {_COMMENTS[key]}" if key in _COMMENTS else ""
        lines.append(f"{last} = {_toml(values[key])}{comment}")
    return "\n".join(lines)


def _place(key: str) -> tuple[int, ...]:
    """Where a setting stands in the model; those of the top of the file before all sections."""
    model: Any = Settings
    indexes: list[int] = []
    for part in key.split("."):
        indexes.append(list(model.model_fields).index(part))
        model = model.model_fields[part].annotation
    return (len(indexes), *indexes)


def example(values: Mapping[str, object] | None = None) -> str:
    """Return a configuration file as text: what has no default filled in, the rest commented out.

    Values, by dotted key, replace examples and defaults.
    """
    head = [
        "# Settings of one app, for `relay run` and `loader run`. Commented lines are the",
        "# defaults. Relative paths count from this file. Secrets never stand in it: a file is",
        '# named, or a variable of the environment as "${NAME}"; these win over both:',
        *(f"#   {name}" for name in (*FROM_ENVIRONMENT, *USERS_FROM_ENVIRONMENT)),
    ]
    return "\n".join([*head, "", *_example(Settings, (), values or {}), "", *_PIPELINES])


def _example(model: type[BaseModel], path: KeyPath, values: Mapping[str, object]) -> Iterator[str]:
    """Values before tables, as TOML demands."""
    for name, field in model.model_fields.items():
        if _section(field) is not None or get_origin(field.annotation) is dict:
            continue
        yield from _meaning(field)
        instance = field.examples[0] if field.examples else None
        key = dotted((*path, name))
        if field.is_required() or key in values:
            yield f"{name} = {_toml(values.get(key, instance))}"
        elif instance is not None:
            yield f"# {name} = {_toml(instance)}  # an example, not the default"
        else:
            yield f"# {name} = {_toml(_plain(field.get_default(), (*path, name)))}"
    for name, field in model.model_fields.items():
        section, title = _section(field), dotted((*path, name))
        if section is not None:
            yield from ("", f"# {_first_line(section)}", f"[{title}]")
            yield from _example(section, (*path, name), values)
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
