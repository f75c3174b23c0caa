"""relay.program.command: what a process says and how it exits, whatever happened."""

from __future__ import annotations

import importlib
import io
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from loader.cli import main as loader_main
from relay import errors
from relay.program.command import EXIT_STATUSES, Lazy, LazyGroup, run_main


def is_error(one: object) -> bool:
    return isinstance(one, type) and issubclass(one, errors.RelayError)


def command_that(behaviour: object) -> click.Command:
    """A command that raises or returns what is given."""

    @click.command()
    def command() -> object:
        if isinstance(behaviour, BaseException):
            raise behaviour
        return behaviour

    return command


ERRORS = [one for one in vars(errors).values() if is_error(one)]


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_of_the_product_prints_cause_and_next_step_and_exits_with_its_status(
    kind: type[errors.RelayError], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(command_that(kind("it broke: 'x'", "mend it")), "relay", []) == kind.exit_code
    out, err = capsys.readouterr()
    more = f"  more: relay docs {kind.page}\n" if kind.page else ""
    assert (out, err) == ("", f"relay: it broke: 'x'\n  next: mend it\n{more}")


def test_every_exit_status_is_documented_in_the_help() -> None:
    for status in {0, errors.EXIT_BUG, 130, *(kind.exit_code for kind in ERRORS)}:
        assert f"\n  {status} " in EXIT_STATUSES


def test_what_nobody_foresaw_is_one_apologetic_line_and_status_70(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RELAY_TRACEBACK", raising=False)
    assert run_main(command_that(KeyError("a\nb")), "relay", []) == errors.EXIT_BUG == 70
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "a bug in block-relay" in err
    assert "KeyError: 'a\\nb'" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "utf-8"])
def test_what_the_terminal_cannot_show_is_escaped(
    monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    """An arrow, and a byte of a path that is not UTF-8; by click and without it."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding))

    @click.command()
    def command() -> None:
        print("1 → 2 \udcff")
        click.echo("3 → 4")

    assert run_main(command, "relay", []) == 0
    sys.stdout.flush()
    shown = written.getvalue()
    assert b"\\udcff" in shown
    assert "1 → 2".encode(encoding, "backslashreplace") in shown


@pytest.mark.parametrize("error", [KeyError("x"), errors.Refused("no")])
def test_the_stack_trace_shows_when_asked_for(
    error: Exception, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAY_TRACEBACK", "1")
    run_main(command_that(error), "relay", [])
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), click.Abort()])
def test_an_interrupt_is_130(interrupt: BaseException) -> None:
    assert run_main(command_that(interrupt), "relay", []) == 130


@pytest.mark.parametrize(("returned", "status"), [(None, 0), (0, 0), (1, 1), (True, 0), ("x", 0)])
def test_an_int_that_a_command_returns_is_the_status(returned: object, status: int) -> None:
    assert run_main(command_that(returned), "relay", []) == status


@pytest.mark.parametrize(
    "behaviour", [click.UsageError("no"), click.FileError("f"), click.ClickException("no")]
)
def test_wrong_usage_is_2(behaviour: click.ClickException) -> None:
    assert run_main(command_that(behaviour), "relay", []) == 2


def test_unknown_arguments_are_2_and_help_is_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(command_that(None), "relay", ["--nope"]) == 2
    assert "No such option" in capsys.readouterr().err
    assert run_main(command_that(None), "relay", ["--help"]) == 0


def test_a_broken_connection_is_not_taken_for_a_closed_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_main(command_that(BrokenPipeError(32, "Broken pipe")), "relay", []) == 70
    assert "BrokenPipeError" in capsys.readouterr().err


def test_a_reader_that_goes_away_ends_the_command_quietly() -> None:
    program = (
        "import sys, click\n"
        "from relay.program.command import run_main\n"
        "@click.command()\n"
        "def c():\n"
        "    for _ in range(100_000): click.echo('x' * 100)\n"
        "sys.exit(run_main(c, 'c', []))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (141, b"")


WRITES = {
    "click": "click.echo('x')",
    "unflushed": "sys.stdout.write('x')",
    "large": "click.echo('x' * 100_000)",
    "table": "Console().print('x')",
    "json": "click.echo(json.dumps({'x': 1}))",
}
"""How commands print."""


def printing(how: str, *options: str) -> list[str]:
    """A program with one command that prints so."""
    code = (
        "import json, sys, click\n"
        "from rich.console import Console\n"
        "from relay.program.command import end, run_main\n"
        "@click.command()\n"
        f"def c(): {how}\n"
        "end(run_main(c, 'relay', []))\n"
    )
    return [sys.executable, *options, "-c", code]


@pytest.mark.parametrize(
    ("how", "options"), [*((how, []) for how in WRITES), ("click", ["-u"]), ("large", ["-u"])]
)
def test_a_full_disk_behind_the_output_is_said(how: str, options: list[str]) -> None:
    """Red before: it was a bug, with status 70, or a stack trace."""
    command = printing(WRITES[how], *options)
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == errors.ConfigError.exit_code
    said = "relay: cannot write the output: No space left on device\n  next: "
    assert done.stderr.startswith(said)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "program", [["loader.cli", "status", "--help"], ["relay.cli", "docs", "faq"]]
)
def test_both_programs_say_so(program: list[str]) -> None:
    module, *arguments = program
    code = f"import {module} as cli; getattr(cli, 'program', cli.main)()"
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr.count("\n")) == (2, 2), done.stderr


@pytest.mark.parametrize("how", WRITES.values(), ids=WRITES)
def test_a_closed_pipe_stays_silent_however_a_command_prints(how: str) -> None:
    """Red before: of a table the status was 1, a failed check's."""
    with subprocess.Popen(
        printing(f"[sys.stdin.read(), {how}]"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (141, b"")


def test_without_any_output_a_command_does_its_work() -> None:
    """As under `>&-`. Red before: a stack trace and status 1, whatever it had done."""
    script = 'exec "$@" >&-'
    command = ["sh", "-c", script, "sh", *printing("click.echo('x', err=True)")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "x\n")


@pytest.mark.parametrize("stream", ["<&-", "2>&-", "<&- >&- 2>&-"])
def test_without_a_stream_a_command_does_its_work(stream: str) -> None:
    """Red before: None has no isatty, which was called a bug of ours, with status 70."""
    command = ["sh", "-c", f'exec "$@" {stream}', "sh"]
    asks = "[sys.stdin.isatty(), sys.stderr.write(str(1)), click.echo(str(2)), sys.stdin.read()]"
    done = subprocess.run([*command, *printing(asks)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ("errors.Refused(str())", errors.Refused.exit_code),
        ("click.UsageError(str())", errors.ConfigError.exit_code),
        ("KeyError()", errors.EXIT_BUG),
    ],
)
def test_an_error_that_cannot_be_printed_keeps_its_status(error: str, status: int) -> None:
    """Red before: 1, whatever it was, and a supervisor starts again after that."""
    raising = f"exec('from relay import errors; raise {error}')"
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(printing(raising), stderr=full, check=False)
    assert done.returncode == status


def group(target: str) -> click.Group:
    return LazyGroup(name="g", commands_at={"c": Lazy(target, "Does it.")})


def test_the_groups_help_imports_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(group("relay.no_such_module:c"), "g", ["--help"]) == 0
    assert "Does it." in capsys.readouterr().out


def test_a_package_that_only_one_command_needs_is_named_with_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wants_a_package.py").write_text("import no_such_package.sub\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert run_main(group("wants_a_package:c"), "g", ["c"]) == errors.MissingTool.exit_code
    err = capsys.readouterr().err
    assert "`g c` needs the Python package 'no_such_package'" in err
    assert "pip install" in err


def test_a_missing_module_of_our_own_is_a_bug(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(group("relay.no_such_module:c"), "g", ["c"]) == errors.EXIT_BUG
    assert "relay.no_such_module" in capsys.readouterr().err


def test_a_bug_in_the_loader_ends_as_one_in_the_relay(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line and status 70; before, the loader printed a stack trace and ended with status 1."""

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(importlib.import_module("loader.cli.status"), "settings_of", fail)
    with pytest.raises(SystemExit) as end:
        loader_main(["status", __file__])

    said = capsys.readouterr().err
    assert end.value.code == errors.EXIT_BUG
    assert said.startswith("loader: ")
    assert "ZeroDivisionError: division by zero" in said
    assert "Traceback" not in said


CRASHES_AT_ITS_END = "import atexit, ctypes; atexit.register(ctypes.string_at, 0); "
"""As a thread of the client library did."""


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("from relay.cli import program; program()", errors.ConfigError.exit_code),
        (
            "from relay.cli import cli, run_main; sys.exit(run_main(cli, 'relay'))",
            -signal.SIGSEGV,
        ),
    ],
    ids=["relay", "control"],
)
def test_a_crash_in_the_interpreters_own_end_does_not_change_the_status(
    program: str, status: int
) -> None:
    code = f"import sys; {CRASHES_AT_ITS_END}{program}"
    ended = subprocess.run([sys.executable, "-c", code, "stauts"], capture_output=True, check=False)
    assert ended.returncode == status
    assert b"Did you mean status?" in ended.stderr


def test_what_was_printed_into_a_file_is_all_there(tmp_path: Path) -> None:
    """A file's output waits in a buffer until the end."""
    with (tmp_path / "help").open("wb") as out:
        code = "from relay.cli import program; program()"
        subprocess.run([sys.executable, "-c", code, "--help"], stdout=out, check=True)
    assert (tmp_path / "help").read_text(encoding="utf-8").endswith("interrupted\n")
