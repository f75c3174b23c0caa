"""Every command line in a document is one that the programs take."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shlex
from collections.abc import Iterator

import click
import pytest

from loader.cli import loader
from relay.cli import cli
from relay.program.command import HELP
from relay.program.config_argument import with_config
from tests.docs import documents

PROGRAMS = {"relay": cli, "loader": loader}
SHELL = ("sh", "bash", "console", "")
"""Languages of fenced blocks with command lines; those without a name show what is printed too,
with `$ ` before what was typed."""

FOREIGN = frozenset(
    {
        # PySpark's spark-submit, kubectl, pytest, docker, kafka-configs
        *("--conf", "--replicas", "--hypothesis-profile", "--entity-type", "--wait"),
        *("--reset-offsets", "--editable", "--dist", "--add-config", "--alter"),
        *("--namespace", "--create-namespace", "--set", "--set-file", "--values"),  # Helm
    }
)
"""Options of other people's programs that documents name by themselves."""


def words_of(line: str) -> list[list[str]]:
    """The commands of one line of a shell, each as words, without redirections and comments."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    skip = False
    for word in lexer:
        if skip:
            skip = False
        elif set(word) <= set("<>"):
            skip = True
        elif set(word) <= set("|&;(){}"):
            commands.append([])
        else:
            commands[-1].append(word)
    return [command for command in commands if command]


def lines_of(text: str) -> Iterator[str]:
    """The command lines in a document's fenced blocks."""
    for language in SHELL:
        for block in documents.fences(text, language):
            for line in whole_lines(block):
                if language:
                    yield line.removeprefix("$ ")
                elif line.startswith("$ "):
                    yield line[2:]


def whole_lines(block: str) -> Iterator[str]:
    """Lines with what continues them, without here-documents."""
    lines = iter(block.replace("\\\n", " ").splitlines())
    for line in lines:
        here = re.search(r"<<-?\s*'?(\w+)'?", line)
        whole = line.replace(here[0], "") if here else line
        while here and next(lines, here[1]).strip() != here[1]:
            pass
        while not _is_whole(whole) and (more := next(lines, None)) is not None:
            whole += f"\n{more}"
        yield whole


def _is_whole(line: str) -> bool:
    """Whether every quotation ends."""
    try:
        words_of(line)
    except ValueError:
        return False
    return True


def command_of(words: list[str]) -> tuple[click.Command | None, list[str], str]:
    """The program that a command line starts, its arguments, and what is wrong already."""
    while words and re.fullmatch(r"\w+=.*", words[0]):
        words = words[1:]
    if not words:
        return None, [], ""
    program = words[0].rpartition("/")[2]
    if program in PROGRAMS:
        return PROGRAMS[program], words[1:], ""
    if re.fullmatch(r"python3?", program) and words[1:2] == ["-m"] and len(words) > 2:
        module = words[2]
        if module.startswith("tests."):
            return _tool(module), words[3:], "" if _is_there(module) else f"no module {module}"
    return None, [], ""


def _is_there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _tool(module: str) -> click.Command | None:
    """The click command of one of the tests' own programs."""
    if not _is_there(module):
        return None
    package = importlib.import_module(module)
    name = f"{module}.__main__" if hasattr(package, "__path__") else module
    found = vars(importlib.import_module(name)).values()
    commands = [one for one in found if isinstance(one, click.Command)]
    groups = [one for one in commands if isinstance(one, click.Group)]
    return (groups or [one for one in commands if one.name == "main"] or [None])[0]


def wrong(command: click.Command, arguments: list[str], *, whole: bool) -> str:
    """Why a command does not take these arguments; empty where it does.

    Args:
        whole: whether nothing that it needs may be missing, as in a line that people copy.
    """
    path = command.name or ""
    while isinstance(command, click.Group):
        if not arguments or arguments[0].startswith("-"):
            return ""
        below = command.get_command(click.Context(command, **HELP), arguments[0])
        if below is None:
            return f"{path}: no command {arguments[0]}"
        command, arguments, path = below, arguments[1:], f"{path} {arguments[0]}"
    context = click.Context(command, info_name=path, **HELP)
    try:
        words = with_config(command, context, arguments)
        given, left, _ = command.make_parser(context).parse_args(words)
    except click.BadOptionUsage as error:
        return f"{path}: {error.format_message()}" if whole else ""
    except click.UsageError as error:
        return f"{path}: {error.format_message()}"
    if left:
        return f"{path}: too much: {left}"
    for parameter in command.params:
        value = given.get(parameter.name or "")
        missing = not isinstance(value, str | list | tuple) or not value
        if whole and parameter.required and missing:
            return f"{path}: {parameter.name} is missing"
        if isinstance(parameter.type, click.Choice | click.IntRange | click.FloatRange):
            for one in value if isinstance(value, list) else [value]:
                try:
                    if isinstance(one, str) and not one.isupper():
                        parameter.type.convert(one, parameter, context)
                except click.BadParameter as error:
                    return f"{path}: {error.format_message()}"
    return ""


def wrong_lines(text: str) -> list[str]:
    """What is wrong with a document's command lines."""
    found = []
    for line in lines_of(text):
        for words in words_of(line):
            command, arguments, problem = command_of(words)
            problem = problem or (wrong(command, arguments, whole=True) if command else "")
            found += [f"{line}: {problem}"] if problem else []
    for code in documents.code(text):
        if re.match(r"(relay|loader|python3? -m tests\.\w+) [a-z-]", code):
            for words in words_of(code.replace("…", "").replace("...", "")):
                command, arguments, problem = command_of(words)
                problem = problem or (wrong(command, arguments, whole=False) if command else "")
                found += [f"{code}: {problem}"] if problem else []
    return found


def options_of(command: click.Command) -> Iterator[str]:
    """Every option of a command and of those below it."""
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield from (*parameter.opts, *parameter.secondary_opts)
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command, **HELP)):
            below = command.get_command(click.Context(command, **HELP), name)
            assert below is not None
            yield from options_of(below)


TOOLS = (
    *("tests.chaos", "tests.bench", "tests.versions", "tests.page", "tests.docs"),
    "tests.k8s.chart",
)


@pytest.fixture(scope="module")
def options() -> set[str]:
    tools = [tool for name in TOOLS if (tool := _tool(name)) is not None]
    known = {option for one in (cli, loader, *tools) for option in options_of(one)}
    return known | {"--help", "--version"} | FOREIGN


def unknown_options(text: str, options: set[str]) -> list[str]:
    """Options named by themselves, as `--json`, that no program has."""
    named = [
        found[0] for code in documents.code(text) if (found := re.match(r"--[a-z][\w-]*", code))
    ]
    return [name for name in named if name not in options]


@pytest.mark.parametrize("path", documents.PATHS)
def test_every_command_line_is_taken(path: str) -> None:
    assert wrong_lines(documents.text_of(path)) == []


@pytest.mark.parametrize("path", documents.PATHS)
def test_every_option_exists(path: str, options: set[str]) -> None:
    assert unknown_options(documents.text_of(path), options) == []


@pytest.mark.parametrize(
    "text",
    [
        "```sh\nrelay runn relay.toml\n```",
        "```sh\nrelay blocks show relay.toml\n```",
        "```sh\nrelay run relay.toml --memberr a\n```",
        "```sh\nrelay run relay.toml --start soon\n```",
        "```sh\nrelay run relay.toml --processes 0 # none\n```",
        "```sh\nrelay run relay.toml other.toml\n```",
        "```sh\ncat x | relay dev sql a b > out\n```",
        "```\n$ relay dead lss\nprinted\n```",
        "```sh\ncat <<'END' > x\nrelay runn\nEND\n{ echo a; relay dev upp; } > x\n```",
        "`relay verify --onse`",
        "`loader parked solve`",
        "`python -m tests.nothing x`",
        "`python -m tests.chaos killls`",
    ],
)
def test_a_wrong_command_is_found(text: str) -> None:
    """Negative control: commands, options, values, arguments; copied and mentioned."""
    assert len(wrong_lines(f"# T\n\n{text}\n")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "```sh\nrelay run relay.toml --member a  # as many as you like\n```",
        "```sh\nrelay config init > relay.toml && $EDITOR relay.toml\n```",
        "```sh\nrelay rewind relay.toml --to-time 2026-08-01T03:00 \\\n  --all --run\n```",
        "```\n$ relay dead show 0:0\nrelay what ever it prints\n```",
        "```sh\nrelay dev sql \"CREATE TABLE t\n  (it's Int8)\" # isn't it?\n```",
        "`relay verify --follow --http HOST:PORT`, `relay rewind … --run`, `relay dead`",
    ],
)
def test_a_right_command_is_no_finding(text: str) -> None:
    assert wrong_lines(f"# T\n\n{text}\n") == []


def test_an_unknown_option_is_found(options: set[str]) -> None:
    """Negative control."""
    assert unknown_options("`--json` `--jsn`", options) == ["--jsn"]
