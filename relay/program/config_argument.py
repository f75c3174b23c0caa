"""Finds a command's configuration file: CONFIG, --config, RELAY_CONFIG, or relay.toml.

Receives the words of a command line, gives them with the file as the first of them, so that
commands find it in one place. Reads at most the first word's file, to tell it from others.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

VARIABLE = "RELAY_CONFIG"
"""Environment variable that names the file where the command line does not."""
DEFAULT = "relay.toml"
_NAMED = "config_named"
_MOST_BYTES = 1 << 20
"""No configuration is larger: what is, is not read to find out."""


class ConfigArgument(click.Argument):
    """The argument CONFIG of a command, its first."""


class ConfiguredCommand(click.Command):
    """A command that may have a CONFIG."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, with the configuration file as the first word.

        Raises:
            click.UsageError: it is named twice, and differently.
        """
        return super().parse_args(ctx, with_config(self, ctx, args))


def config_file_argument(command: F) -> F:
    """Add CONFIG and --config to a ConfiguredCommand; the function gets `config_file`."""
    argument = click.argument(
        "config_file",
        cls=ConfigArgument,
        metavar="[CONFIG]",
        required=False,
        type=click.Path(dir_okay=False, path_type=Path),
    )
    option = click.option(
        "--config",
        _NAMED,
        metavar="FILE",
        expose_value=False,
        type=click.Path(dir_okay=False),
        help="Configuration file, if CONFIG is not given. Default: the file that the environment "
        f"variable {VARIABLE} names, else {DEFAULT}.",
    )
    return argument(option(command))


def with_config(command: click.Command, context: click.Context, args: Sequence[str]) -> list[str]:
    """Put the configuration file before the other words, if the command has one.

    Raises:
        click.UsageError: it is named twice, and differently; or as click does.
    """
    if not any(isinstance(param, ConfigArgument) for param in command.params):
        return list(args)
    words, named = _words(command, context, args)
    if _begins_with_config(command, words):
        if named not in {None, words[0]}:
            raise click.UsageError(
                f"The configuration file is given twice, as {words[0]} and as --config {named}: "
                "leave one out.",
                context,
            )
        return list(args)
    if context.resilient_parsing and not words:
        return list(args)  # the shell completes CONFIG itself
    chosen = named or os.environ.get(VARIABLE) or DEFAULT
    return [f"./{chosen}" if chosen.startswith("-") else chosen, *args]


def _words(
    command: click.Command, context: click.Context, args: Sequence[str]
) -> tuple[list[str], str | None]:
    """Return the words that are neither option nor an option's value, and --config's value."""
    options = [param for param in command.params if not isinstance(param, click.Argument)]
    # Not the command's own, which click remembers as it is first asked for.
    options.append(click.Option(context.help_option_names, is_flag=True))
    words = click.Argument(["words"], nargs=-1, required=False)
    scan = click.Command(command.name, params=[*options, words], add_help_option=False)
    values, _, _ = scan.make_parser(context).parse_args(list(args))
    # What is not there has a value, too, which is neither a list nor a text.
    typed, named = values.get("words"), values.get(_NAMED)
    return (
        list(typed) if isinstance(typed, list | tuple) else [],
        named if isinstance(named, str) else None,
    )


def _begins_with_config(command: click.Command, words: Sequence[str]) -> bool:
    """Return whether the first word is CONFIG, by its name, the number of words, or its text.

    Files, blocks and tables may be any number of words, so that counting tells nothing there.
    """
    if not words:
        return False
    others = [
        param.nargs
        for param in command.params
        if isinstance(param, click.Argument) and not isinstance(param, ConfigArgument)
    ]
    if words[0].endswith(".toml"):
        return True
    return _holds_settings(Path(words[0])) if -1 in others else len(words) > sum(others)


def _holds_settings(path: Path) -> bool:
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return False
        settings = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError):
        return False
    return "kafka" in settings or "pipelines" in settings
