"""What both command lines share: exit statuses, error messages, lazy subcommands.

Receives a click command, gives the process's exit status; prints a stack trace only
when asked to. Knows nothing of any command.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TextIO, TypeVar

import click

from relay import log
from relay.errors import EXIT_BUG, ConfigError, MissingTool, RelayError, install
from relay.program.config_argument import ConfiguredCommand
from relay.program.spelling import meant

F = TypeVar("F", bound=Callable[..., Any])

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


_PIPELINE = "relay.pipeline"
pipeline_option = click.option(
    "--pipeline",
    metavar="NAME",
    expose_value=False,
    callback=lambda context, _, value: context.meta.update({_PIPELINE: value}),
    help="Use only this one of the [pipelines] in the configuration.",
)
"""Of all commands that read a configuration; `chosen_pipeline` has the value."""


def chosen_pipeline() -> str | None:
    """Return the value of --pipeline of the running command; None if it is not given."""
    chosen: str | None = click.get_current_context().meta.get(_PIPELINE)
    return chosen


def one_of(into: str, option: str, value: str, text: str) -> Callable[[F], F]:
    """Return an option that is one of several words, of which a command is given one at most.

    Of click's own options with one name and several `flag_value`, the last wins in silence. The
    argument `into` of the command's function gets `value`, or None without any such option.
    """

    def take(context: click.Context, _: click.Parameter, is_set: bool) -> None:  # noqa: FBT001 - click's
        if not is_set:
            context.params.setdefault(into, None)
            return
        before = context.meta.setdefault(f"relay.{into}", option)
        if before != option:
            raise click.UsageError(f"{before} and {option} contradict each other: give one")
        context.params[into] = value

    return click.option(option, is_flag=True, expose_value=False, callback=take, help=text)


def run_main(command: click.Command, prog_name: str, arguments: Sequence[str] | None = None) -> int:
    """Run a command line, the process's own by default, and turn what happens into an exit status.

    Returns:
        0 (or the int a command returned) when it ended well; the status of the
        RelayError; 2 for wrong usage; 130 when interrupted; 70 for what nobody foresaw.
    """
    output = _prepared_output()
    given = list(sys.argv[1:] if arguments is None else arguments)
    if f"_{prog_name.upper()}_COMPLETE" in os.environ:
        command.main(given, prog_name)  # click answers the shell's completion and exits
    try:
        with command.make_context(prog_name, given) as context:
            result = command.invoke(context)
            sys.stdout.flush()
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as wrong:
        with _ignoring_write_errors():
            wrong.show()
        return ConfigError.exit_code
    except RelayError as error:
        _print_trace()
        show_error(prog_name, error)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort) as ended:
        _print_error("; ".join([f"{prog_name}: interrupted", *getattr(ended, "__notes__", ())]))
        return EXIT_INTERRUPTED
    except SystemExit:
        if output is not None and isinstance(output.error, BrokenPipeError):
            return EXIT_PIPE_CLOSED  # what rich makes of it, with the status of a failed check
        raise
    except Exception as bug:  # noqa: BLE001 - the last place that can say something
        if output is not None and bug is output.error:
            return _unwritten(prog_name, output.error)
        return _unforeseen(prog_name, bug)
    return result if isinstance(result, int) and not isinstance(result, bool) else 0


class _Output(io.FileIO):
    """Standard output, which keeps its error: that names no file, and may be any other's."""

    error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.error = error
            raise


def _prepared_output() -> _Output | None:
    """Standard output to be; None where it is no file of the process, as in tests.

    A stream that is closed becomes an empty one.

    Where the terminal's encoding has no arrow, as Latin-1, `\\u2192` is printed for one.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # `>&-`; whatever is opened next would be taken for it
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
    stdout = sys.stdout
    if stdout is sys.__stdout__ and isinstance(stdout, io.TextIOWrapper):
        file = _Output(stdout.fileno(), "wb", closefd=False)
        sys.stdout = io.TextIOWrapper(
            file if stdout.write_through else io.BufferedWriter(file),
            stdout.encoding,
            line_buffering=stdout.line_buffering,
            write_through=stdout.write_through,
        )
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    buffer = getattr(sys.stdout, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    return raw if isinstance(raw, _Output) else None


def end(status: int) -> NoReturn:
    """End the process with this status, and without the interpreter's own clean-up.

    The client library's threads run until the very end, and OpenSSL frees, in that clean-up, what
    they encrypt with: a relay printed the right error and ended with status -11, by a segmentation
    fault of a broker's thread in OpenSSL.
    """
    logging.shutdown()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(status)


def _print_error(text: str) -> None:
    with _ignoring_write_errors():
        click.echo(text, err=True)


@contextlib.contextmanager
def _ignoring_write_errors() -> Iterator[None]:
    """Where stderr cannot be written, the status alone says it."""
    try:
        yield
    except OSError:
        _silence(sys.stderr)


def _silence(stream: TextIO) -> None:
    """Drop what a stream still holds: the interpreter flushes it when it ends, and complains."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def show_error(prog_name: str, error: RelayError) -> None:
    """Print message, next step and page on stderr, in the format of the log lines."""
    if log.is_json():
        told = {"next": error.next_step, "more": error.more}
        logging.getLogger(prog_name).error(error.message, extra=told)
    else:
        _print_error(f"{prog_name}: {error}")


def _unwritten(prog_name: str, why: OSError) -> int:
    """Say that standard output cannot be written, unless it is its reader who went away."""
    _silence(sys.stdout)
    if isinstance(why, BrokenPipeError):
        return EXIT_PIPE_CLOSED
    _print_trace()
    wrong = ConfigError(
        f"cannot write the output: {why.strerror}",
        "make room for it, or send it to another file",
    )
    show_error(prog_name, wrong)
    return wrong.exit_code


def _unforeseen(prog_name: str, bug: Exception) -> int:
    """Print an error that is none of ours, with a stack trace if asked for; return its status."""
    _print_trace()
    if isinstance(bug, OSError) and bug.filename and bug.errno in _OF_A_PATH:
        wrong = ConfigError(f"{os.fsdecode(bug.filename)}: {bug.strerror}", OTHER_PATH)
        show_error(prog_name, wrong)
        return wrong.exit_code
    what = " ".join(str(bug).split()) or "no message"
    _print_error(
        f"{prog_name}: a bug in block-relay: {type(bug).__name__}: {what} ({TRACEBACK}=1 shows "
        "where)"
    )
    return EXIT_BUG


def _print_trace() -> None:
    if os.environ.get(TRACEBACK) == "1":
        with _ignoring_write_errors():
            traceback.print_exc()


class Lazy(NamedTuple):
    """A subcommand that is imported when it is used."""

    target: str
    """`module:attribute` of the click command."""
    summary: str
    """One line in the group's help, so that the help imports no command."""


class WholeGroup(click.Group):
    """A group that shows summaries in full, and suggests commands spelled like an unknown one."""

    command_class = ConfiguredCommand

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command as click does; suggest others if there is none.

        Raises:
            click.UsageError: there is no such command.
        """
        names, name = self.list_commands(ctx), args[0]
        if name not in names and not name.startswith("-") and not ctx.resilient_parsing:
            close = meant(name, names)
            hint = f" Did you mean {close}?" if close else ""
            raise click.UsageError(f"No such command {name!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

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


class LazyGroup(WholeGroup):
    """A group whose subcommands are imported one by one: `--help` and completion stay quick.

    The help has the order of `commands_at`.
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
            command = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as missing:
            top = (missing.name or "").partition(".")[0]
            if top in {"", "relay", "loader"}:
                raise
            raise MissingTool(
                f"`{ctx.info_name} {cmd_name}` needs the Python package {top!r}",
                install("demo"),
            ) from missing
        if not isinstance(command, click.Command):
            raise TypeError(f"{lazy.target} is not a click command but {command!r}")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from their summaries, without importing them."""
        del ctx
        rows = [(name, lazy.summary) for name, lazy in self._commands_at.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
