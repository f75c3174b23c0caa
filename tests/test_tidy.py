"""The house rules that no linter knows: sizes, purity of the cores, help."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).resolve().parents[1]
LONGEST_FUNCTION = 70
LONGEST_MODULE = 400
GENERATED = {"relay/records_pb2.py"}

LONGER_MODULES: dict[str, str] = {
    "loader/plan.py": "every decision about a block stands in one file, with its proof",
    "relay/core/step.py": "every transition stands in one file, so that the table is the truth",
}
"""Modules over 400 lines, each with the reason why it stays whole."""

LONGER_FUNCTIONS: dict[str, str] = {}
"""`module:function` over 70 lines, each with its reason."""

IMPURE_MODULES = frozenset(
    {
        # clocks and chance
        *("time", "datetime", "random", "secrets", "uuid"),
        # files, processes, threads, the network
        *("os", "io", "pathlib", "tempfile", "shutil", "subprocess", "multiprocessing", "signal"),
        *("threading", "concurrent", "asyncio", "select", "socket", "http", "urllib", "logging"),
        # clients and engines
        *("confluent_kafka", "pyspark", "py4j", "clickhouse_connect", "chdb", "requests"),
        *("click", "psutil", "rich"),
    }
)
"""What the cores must not import."""
IMPURE_CALLS = frozenset({"open", "print", "input", "exec", "eval", "__import__"})


def modules() -> list[str]:
    """Every module of the product, as a path from the root."""
    found = [p for package in ("relay", "loader") for p in (ROOT / package).rglob("*.py")]
    return sorted(str(p.relative_to(ROOT)) for p in found if "__pycache__" not in p.parts)


def cores() -> list[str]:
    """The modules that hold the pure state machines."""
    return [m for m in modules() if m.startswith("relay/core/") or m == "loader/plan.py"]


def written() -> list[str]:
    """The modules that people write."""
    return [m for m in modules() if m not in GENERATED]


def source(module: str) -> str:
    return (ROOT / module).read_text(encoding="utf-8")


def long_functions(text: str) -> Iterator[tuple[str, int]]:
    """Functions over the limit, with their lines from `def` to end, docstring included."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > LONGEST_FUNCTION:
                yield node.name, length


def impurities(text: str) -> Iterator[str]:
    """What a core must not do: imports and calls that reach out of it."""
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            if name.partition(".")[0] in IMPURE_MODULES:
                yield f"line {node.lineno}: import of {name}"
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in IMPURE_CALLS
        ):
            yield f"line {node.lineno}: call of {node.func.id}"


def unhelpful(command: click.Command, path: str) -> Iterator[str]:
    """Commands and options, from this one down, that explain nothing."""
    context = click.Context(command, info_name=path)
    if not (command.help or "").strip():
        yield path
    for option in command.params:
        if isinstance(option, click.Option) and not option.help and not option.hidden:
            yield f"{path} {option.opts[0]}"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, f"{path} {name} is listed but not there"
            yield from unhelpful(below, f"{path} {name}")


@pytest.mark.parametrize("module", written())
def test_no_module_is_longer_than_a_person_reads_at_once(module: str) -> None:
    """A module has at most 400 lines, unless its reason stands in LONGER_MODULES."""
    lines = source(module).count("\n")
    if module in LONGER_MODULES:
        assert lines > LONGEST_MODULE, f"{module} has become short: take it off the list"
    else:
        assert lines <= LONGEST_MODULE


@pytest.mark.parametrize("module", written())
def test_no_function_is_longer_than_a_page(module: str) -> None:
    """A function has at most 70 lines, unless its reason stands in LONGER_FUNCTIONS."""
    found = {f"{module}:{name}": length for name, length in long_functions(source(module))}
    assert {k: v for k, v in found.items() if k not in LONGER_FUNCTIONS} == {}


def test_every_exception_to_the_sizes_still_exists_and_has_a_reason() -> None:
    """A list of exceptions holds no name that is gone."""
    functions = {f"{m}:{name}" for m in written() for name, _ in long_functions(source(m))}
    assert LONGER_MODULES.keys() <= set(written())
    assert LONGER_FUNCTIONS.keys() <= functions
    for reason in (*LONGER_MODULES.values(), *LONGER_FUNCTIONS.values()):
        assert len(reason) > 20


def test_a_long_function_is_found() -> None:
    """Negative control: 71 lines are found, 70 are not."""
    body = "    x = 1\n"
    assert list(long_functions("def f():\n" + body * 69)) == []
    assert list(long_functions("class C:\n  async def f():\n" + body * 70)) == [("f", 71)]


def test_the_cores_reach_out_to_nothing() -> None:
    """relay/core and loader/plan.py use no clock, chance, file, client or thread."""
    assert any(m.startswith("relay/core/") for m in cores())
    assert "loader/plan.py" in cores()
    assert {m: found for m in cores() if (found := list(impurities(source(m))))} == {}


@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "def f():\n    import time as t",
        "from time import time",
        "from datetime import datetime",
        "import random",
        "import os.path",
        "from confluent_kafka import Producer",
        "import clickhouse_connect.driver",
        "open('x')",
        "print(1)",
    ],
)
def test_an_impure_core_is_found(text: str) -> None:
    """Negative control of the purity check."""
    assert len(list(impurities(text))) == 1


def test_a_pure_core_passes() -> None:
    """Negative control the other way: names that only look alike are no finding."""
    assert list(impurities("from relay import names\nopened = state.open\ntime = 5\n")) == []


def test_every_command_and_option_has_help() -> None:
    """`--help` explains each command of both programs and each of its options."""
    for program in ("relay", "loader"):
        module = importlib.import_module(f"{program}.cli")
        groups = [v for v in vars(module).values() if isinstance(v, click.Group)]
        assert groups, f"{program}.cli holds no command group"
        assert [line for group in groups for line in unhelpful(group, program)] == []


def test_a_command_without_help_is_found() -> None:
    """Negative control: a command and an option that explain nothing."""
    group = click.Group("g", help="Does it.")
    group.add_command(click.Command("c", params=[click.Option(["--o"])]))
    assert list(unhelpful(group, "g")) == ["g c", "g c --o"]
