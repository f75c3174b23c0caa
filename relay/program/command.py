"""What both command lines share: exit statuses, error messages, lazy subcommands.

Receives a click command, gives the process's exit status; prints a stack trace only
when asked to. Knows nothing of any command.
"""

from __future__ import annotations

import errno
import importlib
import io
import logging
import os
import select
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import click

from relay import log
from relay.errors import EXIT_BUG, ConfigError, MissingTool, RelayError, install
from relay.program.config_argument import ConfiguredCommand
from relay.program.spelling import meant

TRACEBACK = "RELAY_TRACEBACK"
"""Environment variable: at 1 every error shows its stack trace."""

OTHER_PATH = "name another path, or mend this one"
"""Next step of errors of a file that a person named."""
_OF_A_PATH = frozenset(
    {
        errno.EACCES,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EROFS,
    }
)
"""What is wrong with a path until a person mends it. A full disk, or too many open files, pass: a
supervisor starts the program again."""

EXIT_INTERRUPTED = 130
"""128 + SIGINT, as shells count it."""

EXIT_PIPE_CLOSED = 141
"""128 + SIGPIPE: whoever read the output went away, as `head` does."""

HELP: Mapping[str, Any] = {"help_option_names": ["-h", "--help"]}
"""Context settings of a command line, for all of its commands."""

EXIT_STATUSES = """\
\b
Exit status:
  0   done
  1   a check of the result failed
  2   a setting, argument or file is wrong
  3   Java, a package or a jar is missing
  4   a server did not answer
  5   a server refused: rights, missing topic or table
  6   recorded and found state disagree; a person has to decide
  7   another process runs under this name
  8   warnings and no error (`relay doctor`)
  70  a bug (RELAY_TRACEBACK=1 shows where)
  130 interrupted
"""
"""Epilogue of the help texts; the statuses are those of relay.errors."""


log_format_option = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    envvar=log.FORMAT,
    help=f"Format of log lines; json prints one object per line. {log.FORMAT} sets it, too.",
)
"""Of the programs that run for long."""


def _choose_pipeline(context: click.Context, _: click.Parameter, value: str | None) -> str | None:
    context.meta[_PIPELINE] = value
    return value


_PIPELINE = "relay.pipeline"
pipeline_option = click.option(
    "--pipeline",
    metavar="NAME",
    expose_value=False,
    callback=_choose_pipeline,
    help="Use only this one of the [pipelines] in the configuration.",
)
"""Of all commands that read a configuration; `chosen_pipeline` has the value."""


def chosen_pipeline() -> str | None:
    """Return the value of --pipeline of the running command; None if it is not given."""
    chosen: str | None = click.get_current_context().meta.get(_PIPELINE)
    return chosen


def run_main(command: click.Command, prog_name: str, arguments: Sequence[str] | None = None) -> int:
    """Run a command line and turn whatever happens into an exit status.

    Args:
        command: the command or group.
        prog_name: as users type it.
        arguments: instead of the process's own.

    Returns:
        0 (or the int a command returned) when it ended well; the status of the
        RelayError; 2 for wrong usage; 130 when interrupted; 70 for what nobody foresaw.
    """
    _escape_what_cannot_be_shown()
    given = list(sys.argv[1:] if arguments is None else arguments)
    if f"_{prog_name.upper()}_COMPLETE" in os.environ:
        command.main(given, prog_name)  # click answers the shell's completion and exits
    try:
        with command.make_context(prog_name, given) as context:
            result = command.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as wrong:
        wrong.show()
        return ConfigError.exit_code
    except RelayError as error:
        _show_trace()
        show_error(prog_name, error)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo(f"{prog_name}: interrupted", err=True)
        return EXIT_INTERRUPTED
    except Exception as bug:  # noqa: BLE001 - the last place that can say something
        return _unforeseen(prog_name, bug)
    return result if isinstance(result, int) and not isinstance(result, bool) else 0


def _escape_what_cannot_be_shown() -> None:
    """Print `\\u2192` for an arrow where the terminal's encoding has none, as Latin-1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def end(status: int) -> NoReturn:
    """End the process with this status, and without the interpreter's own clean-up.

    The client library's threads run until the very end, and OpenSSL frees, in that clean-up, what
    they encrypt with: a relay printed the right error and ended with status -11, by a segmentation
    fault of a broker's thread in OpenSSL.
    """
    logging.shutdown()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        status = EXIT_PIPE_CLOSED
    os._exit(status)


def show_error(prog_name: str, error: RelayError) -> None:
    """Print message, next step and page on stderr, in the format of the log lines."""
    if log.is_json():
        told = {"next": error.next_step, "more": error.more}
        logging.getLogger(prog_name).error(error.message, extra=told)
    else:
        click.echo(f"{prog_name}: {error}", err=True)


def _unforeseen(prog_name: str, bug: Exception) -> int:
    """Print an error that is none of ours, with a stack trace if asked for; return its status."""
    if isinstance(bug, BrokenPipeError) and _output_is_closed():
        return EXIT_PIPE_CLOSED
    _show_trace()
    if isinstance(bug, OSError) and bug.filename and bug.errno in _OF_A_PATH:
        wrong = ConfigError(f"{os.fsdecode(bug.filename)}: {bug.strerror}", OTHER_PATH)
        show_error(prog_name, wrong)
        return wrong.exit_code
    what = " ".join(str(bug).split()) or "no message"
    click.echo(
        f"{prog_name}: a bug in block-relay: {type(bug).__name__}: {what} ({TRACEBACK}=1 shows "
        "where)",
        err=True,
    )
    return EXIT_BUG


def _show_trace() -> None:
    if os.environ.get(TRACEBACK) == "1":
        traceback.print_exc()


def _output_is_closed() -> bool:
    """Return whether stdout broke, and not some connection; if so, silence it."""
    try:
        output = sys.stdout.fileno()
    except OSError:
        return False  # not a file: nothing that a reader could close
    watch = select.poll()
    watch.register(output, 0)
    if not any(events & select.POLLERR for _, events in watch.poll(0)):
        return False
    # The interpreter flushes once more when it ends, and would complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return True


class Lazy(NamedTuple):
    """A subcommand that is imported when it is used."""

    target: str
    """`module:attribute` of the click command."""
    summary: str
    """One line in the group's help, so that the help imports no command."""


class SuggestingGroup(click.Group):
    """A group that suggests commands spelled like an unknown one."""

    command_class = ConfiguredCommand

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command as click does; suggest others if there is none.

        Raises:
            click.UsageError: there is no such command.
        """
        known, name = self.list_commands(ctx), args[0]
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            close = meant(name, known)
            hint = f" Did you mean {close}?" if close else ""
            raise click.UsageError(f"No such command {name!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)


class WholeGroup(SuggestingGroup):
    """A group whose help shows each summary in full."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the first sentence of each command."""
        del ctx
        rows = [
            (name, command.get_short_help_str(limit=1_000))
            for name, command in self.commands.items()
            if not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class LazyGroup(SuggestingGroup):
    """A group whose subcommands are imported one by one: `--help` and completion stay quick.

    Args:
        commands_at: name to Lazy, in the order of the help.
        attributes: of click.Group.
    """

    def __init__(self, *, commands_at: Mapping[str, Lazy], **attributes: Any) -> None:
        super().__init__(**attributes)
        self._commands_at = commands_at

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands in the order given, which is that of the work."""
        return [*self._commands_at, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command and return it.

        Raises:
            MissingTool: a package that only this command needs is not installed.
        """
        lazy = self._commands_at.get(cmd_name)
        if lazy is None:
            return super().get_command(ctx, cmd_name)
        module, attribute = lazy.target.split(":")
        try:
            found = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as missing:
            top = (missing.name or "").partition(".")[0]
            if top in {"", "relay", "loader"}:
                raise
            raise MissingTool(
                f"`{ctx.info_name} {cmd_name}` needs the Python package {top!r}",
                install("demo"),
            ) from missing
        if not isinstance(found, click.Command):
            raise TypeError(f"{lazy.target} is not a click command but {found!r}")
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from their summaries, without importing them."""
        del ctx
        rows = [(name, lazy.summary) for name, lazy in self._commands_at.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
