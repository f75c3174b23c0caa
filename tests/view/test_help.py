"""Who asks for help is shown how it is typed, and what is wrong is said."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from loader.cli import loader
from relay.cli import cli
from relay.program.command import HELP
from relay.version import __version__

PROGRAMS: dict[str, click.Group] = {"relay": cli, "loader": loader}
COMMANDS = [
    "relay status",
    "relay blocks ls",
    "relay blocks show",
    "relay journal tail",
    "loader status",
    "loader parked ls",
    "loader parked resolve",
    "loader supersede",
    "relay rewind",
    "relay accept",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_itself_in_use(command: str) -> None:
    """`--help` holds a line that begins as the command does."""
    program, *words = command.split()
    done = CliRunner().invoke(PROGRAMS[program], [*words, "--help"])
    assert done.exit_code == 0
    lines = [line.strip() for line in done.output.splitlines()]
    assert any(line.startswith(f"{command} relay.toml") for line in lines)


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_program_says_its_version_and_knows_h(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = click.Context(PROGRAMS[program], **HELP)
    for name in ("run", "status"):
        # A test that ran before may have called the command without its program; click keeps the
        # help option that it made then.
        command = PROGRAMS[program].get_command(context, name)
        monkeypatch.setattr(command, "_help_option", None)
    done = CliRunner().invoke(PROGRAMS[program], ["--version"])
    assert (done.exit_code, done.output) == (0, f"{program}, version {__version__}\n")
    for words in ([], ["run"], ["status"]):
        short, long = (CliRunner().invoke(PROGRAMS[program], [*words, h]) for h in ("-h", "--help"))
        assert (short.exit_code, short.output) == (0, long.output)
    assert "Exit status:" in CliRunner().invoke(PROGRAMS[program], ["-h"]).output


def test_a_resolve_without_a_word_is_no_resolve(tmp_path: Path) -> None:
    """Before any server is asked."""
    done = CliRunner().invoke(
        loader, ["parked", "resolve", str(tmp_path / "x.toml"), "a:b.c:0:0:1"]
    )
    assert done.exit_code == 2
    assert "--discard" in done.output


def test_a_resolve_with_two_words_is_none_and_one_may_be_said_twice(tmp_path: Path) -> None:
    """ "All rows are there" and "none is" in one line: neither is what its writer meant."""
    words = ["parked", "resolve", str(tmp_path / "x.toml"), "a:b.c:0:0:1", "--loaded"]
    done = CliRunner().invoke(loader, [*words, "--insert"])
    assert done.exit_code == 2
    assert "--loaded and --insert contradict each other: give one" in done.output
    assert "there is no file" in str(CliRunner().invoke(loader, [*words, "--loaded"]).exception)


@pytest.mark.parametrize(
    "group",
    ["loader", "loader parked", "loader ledger", "relay", "relay dead", "relay blocks",
     "relay config", "relay schema"],
)  # fmt: skip
def test_no_summary_is_cut(group: str) -> None:
    program, *words = group.split()
    output = CliRunner().invoke(PROGRAMS[program], [*words, "--help"]).output
    assert "..." not in output.partition("Commands:")[2]
