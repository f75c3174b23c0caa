"""Each command that needs a configuration is told it in the same four ways."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from loader.cli import loader
from relay.cli import cli
from relay.program.config_argument import ConfigArgument, ConfiguredCommand, with_config
from tests.config.test_load import GOOD, write

WITHOUT = {
    *("relay demo", "relay dev up", "relay dev down", "relay dev status", "relay dev sql"),
    *("relay config init", "relay docs", "loader prepare"),
    *("relay export alerts", "relay export dashboard", "relay export kubernetes"),
}
"""Commands that need no configuration."""
OLD = [
    ("relay produce", ["a.conf", "x.csv"], "a.conf"),
    ("relay produce", ["a.conf", "--table", "s.o", "x.csv", "y.csv"], "a.conf"),
    ("relay blocks show", ["a.conf", "s:s.o:0:0:1"], "a.conf"),
    ("relay status", ["a.conf"], "a.conf"),
    ("loader run", ["a.conf", "--once"], "a.conf"),
    ("loader parked resolve", ["a.conf", "s:s.o:0:0:1", "--retry"], "a.conf"),
    ("relay dead ls", ["--config", "a.conf"], "a.conf"),
    ("relay dead show", ["0:1"], "relay.toml"),
    ("relay dead replay", ["0:1", "0:2", "--config", "a.conf"], "a.conf"),
    ("relay schema proto", ["shop.orders", "--config", "a.conf"], "a.conf"),
    ("relay schema check", ["orders.proto"], "relay.toml"),
]
"""Spellings of before all took the same."""


def leaves(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by how it is typed."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    for name in command.list_commands(click.Context(command)):
        below = command.get_command(click.Context(command), name)
        assert below is not None
        yield from leaves(below, f"{path} {name}")


PROGRAMS: dict[str, click.Group] = {"relay": cli, "loader": loader}
COMMANDS = {path: one for name, group in PROGRAMS.items() for path, one in leaves(group, name)}
CONFIGURED = sorted(COMMANDS.keys() - WITHOUT)


def told(path: str, words: list[str]) -> str:
    """The file that a command would read."""
    command = COMMANDS[path]
    found = with_config(command, click.Context(command), words)
    return found[0]


@pytest.mark.parametrize("path", CONFIGURED)
def test_every_command_takes_it_in_every_way(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By place, by option, by variable, and by its usual name; the variable last but one."""
    command = COMMANDS[path]
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    assert isinstance(command, ConfiguredCommand)
    assert isinstance(arguments[0], ConfigArgument)
    others = ["shop.orders"] * sum(abs(one.nargs) for one in arguments[1:])
    assert told(path, others) == "relay.toml"
    monkeypatch.setenv("RELAY_CONFIG", "of-variable.toml")
    assert told(path, others) == "of-variable.toml"
    assert told(path, [*others, "--config", "of-option"]) == "of-option"
    assert told(path, ["of-place.toml", *others]) == "of-place.toml"
    program, *words = path.split()
    help_ = CliRunner().invoke(PROGRAMS[program], [*words, "--help"]).output
    assert "--config FILE" in help_
    assert "RELAY_CONFIG" in help_
    assert "[CONFIG]" in help_


@pytest.mark.parametrize(("path", "words", "file"), OLD)
def test_former_spellings_work(
    path: str, words: list[str], file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.conf").write_text('[kafka]\nbootstrap = "b:1"\n', encoding="utf-8")
    Path("x.csv").write_text("id\n1\n", encoding="utf-8")
    assert told(path, words) == file
    # Saved by an editor that begins files with a byte order mark.
    Path("a.conf").write_text('\ufeff[kafka]\nbootstrap = "b:1"\n', encoding="utf-8")
    assert told(path, words) == file


def test_a_file_of_rows_is_no_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is one that is not there, a directory, or one that is too large to be one."""
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").touch()
    Path("rows.txt").write_text("a,b\n1,2\n", encoding="utf-8")
    Path("large.conf").write_text("[kafka]\n" + "#" * (1 << 20), encoding="utf-8")
    Path("d").mkdir()
    for name in ("empty.txt", "rows.txt", "large.conf", "d", "missing", "-"):
        assert told("relay produce", [name, "more.csv", "--table", "s.o"]) == "relay.toml"


def test_twice_is_one_too_often() -> None:
    """Unless it is the same."""
    with pytest.raises(click.UsageError, match=r"given twice, as a\.toml and as --config b"):
        told("relay status", ["a.toml", "--config", "b"])
    assert told("relay status", ["a.toml", "--config", "a.toml"]) == "a.toml"


def test_the_commands_read_what_they_were_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: without any, the file of the usual name is missed, and ways are named."""
    monkeypatch.chdir(tmp_path)
    missing = CliRunner().invoke(cli, ["config", "check"])
    assert "there is no file relay.toml" in str(missing.exception)
    assert "--config or in RELAY_CONFIG" in str(missing.exception)
    file = str(write(tmp_path, GOOD).rename(tmp_path / "my.conf"))
    for words in ([file], ["--config", file]):
        assert f"{file}: ok" in CliRunner().invoke(cli, ["config", "check", *words]).output
    monkeypatch.setenv("RELAY_CONFIG", file)
    assert f"{file}: ok" in CliRunner().invoke(cli, ["config", "check"]).output


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["relay", "stauts"], "status"),
        (["relay", "config", "chek"], "check"),
        (["loader", "parkd"], "parked"),
    ],
)
def test_a_command_that_is_misspelled_is_found(words: list[str], meant: str) -> None:
    program, *rest = words
    done = CliRunner().invoke(PROGRAMS[program], rest)
    assert done.exit_code == 2
    assert f"Did you mean {meant}" in done.output
    other = CliRunner().invoke(cli, ["qqq"]).output
    assert "No such command 'qqq'." in other
    assert "Did you mean" not in other


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("relay sta", "plain,status"),
        ("relay status re", "file,re"),
        ("relay status relay.toml --wa", "plain,--watch"),
        ("relay produce relay.toml x", "file,x"),
        ("relay docs tro", "plain,troubleshooting"),
        ("loader run --on", "plain,--once"),
    ],
)
def test_shells_complete_commands(line: str, offered: str) -> None:
    """Also where the configuration is not named yet."""
    program, *words = line.split()
    done = subprocess.run(
        [Path(sys.executable).parent / program],
        env={
            **os.environ,
            f"_{program.upper()}_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words)),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines() == [offered], done.stderr
