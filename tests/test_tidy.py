"""The house rules that no linter knows: sizes, rooms, purity, help."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import click
import grimp
import pytest

from relay.program.command import HELP

ROOT = Path(__file__).resolve().parents[1]
LONGEST_FUNCTION = 70
LONGEST_MODULE = 400
GENERATED = {"relay/records_pb2.py"}
DIALECT = frozenset(
    {
        *("apart", "aside", "asked", "away", "few", "found", "given", "heard", "held", "kept"),
        *("left", "looking", "looks", "moved", "plain", "read", "said", "seen", "sent", "shown"),
        *("standing", "strangers", "told", "troubles", "wanted"),
    }
)
"""Words that say nothing of the field: no module or test file is named with one alone."""

SPOKEN = frozenset(
    {"apart", "few", "heard", "looking", "plain", "said", "shown", "standing", "told"}
)
"""Participles and adjectives that no public function or parameter is named with."""

TOP_LEVEL = frozenset(
    {
        *("setup.cfg", "relay", "loader", "tests", "k8s", "README.md"),
        *("pyproject.toml", "LICENSE", "CHANGELOG.md"),
    }
)
"""What may stand beside dot-files, as the users of this repository fixed it."""

LONGER_MODULES: dict[str, str] = {
    "loader/core/plan.py": "every decision about a block stands in one file, with its proof",
    "relay/core/step.py": "every transition stands in one file, so that the table is the truth",
}
"""Modules over 400 lines, each with the reason why it stays whole."""

REACHING_OUT = {
    "relay/schema/types/value_checks.py": ["line 147: call of uuid4"],
}
"""What pure modules do nevertheless: a separator that no producer can guess is made at random."""

LONGER_FUNCTIONS: dict[str, str] = {}
"""`module:function` over 70 lines, each with its reason."""

PURE = "# pure"
"""A module with this line reaches out to nothing; in a room's `__init__`, all its modules do."""

PURE_ROOMS = {
    "relay/core",
    "relay/schema/types",
    "relay/operate/verify/judge",
    "relay/operate/doctor/judge",
    "loader/core",
}
"""Rooms whose purity is a promise of the design: none of them may lose its mark."""

IMPURE_MODULES = frozenset(
    {
        # clocks and chance
        *("time", "random", "secrets"),
        # files, processes, threads, the network
        *("os", "io", "pathlib", "tempfile", "shutil", "subprocess", "multiprocessing", "signal"),
        *("threading", "concurrent", "asyncio", "select", "socket", "http", "urllib", "logging"),
    }
)
"""What pure modules must not import themselves."""
IMPURE_CALLS = frozenset({"open", "print", "input", "exec", "eval", "__import__"})
IMPURE_METHODS = frozenset({"now", "today", "utcnow", "uuid1", "uuid4"})
"""Of `datetime` and `uuid`, whose values alone are pure."""
CLIENTS = frozenset(
    {
        *("confluent_kafka", "pyspark", "py4j", "clickhouse_connect", "chdb", "requests"),
        *("click", "psutil"),
    }
)
"""What pure modules must not import, by whatever way."""


def modules() -> list[str]:
    """Every module of the product, as a path from the root."""
    found = [p for package in ("relay", "loader") for p in (ROOT / package).rglob("*.py")]
    return sorted(str(p.relative_to(ROOT)) for p in found if "__pycache__" not in p.parts)


def pure() -> list[str]:
    """The modules that are marked as pure, by themselves or by their room."""
    marked = {m for m in modules() if PURE in source(m).splitlines()}
    rooms = {str(Path(m).parent) for m in marked if m.endswith("__init__.py")}
    return [m for m in modules() if m in marked or str(Path(m).parent) in rooms]


def written() -> list[str]:
    """The modules that people write."""
    return [m for m in modules() if m not in GENERATED]


@cache
def source(module: str) -> str:
    return (ROOT / module).read_text(encoding="utf-8")


@cache
def tree(text: str) -> ast.Module:
    """The text as a syntax tree, which several tests look through."""
    return ast.parse(text)


def long_functions(text: str) -> Iterator[tuple[str, int]]:
    """Functions over the limit, with their lines from `def` to end, docstring included."""
    for node in ast.walk(tree(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > LONGEST_FUNCTION:
                yield node.name, length


def impurities(text: str) -> Iterator[str]:
    """What a pure module must not do: imports and calls that reach out of it."""
    for node in ast.walk(tree(text)):
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
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in IMPURE_METHODS
        ):
            yield f"line {node.lineno}: call of {node.func.attr}"


def client_imports(graph: grimp.ImportGraph, module: str) -> set[str]:
    """The client libraries that a module imports, itself or by what it imports."""
    return graph.find_upstream_modules(module) & CLIENTS


def dotted(module: str) -> str:
    """A module's path as it is imported."""
    return module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def unhelpful(command: click.Command, path: str) -> Iterator[str]:
    """Commands and options, from this one down, that explain nothing."""
    context = click.Context(command, info_name=path, **HELP)
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


def _astray(tracked: Iterable[str]) -> set[str]:
    """Files and directories that do not belong to the top level."""
    top = {path.partition("/")[0] for path in tracked}
    return {name for name in top - TOP_LEVEL if not name.startswith(".")}


def _tracked() -> list[str]:
    git = ["git", "ls-files"]
    return subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


def test_nothing_stands_at_the_top_level_by_mistake() -> None:
    assert _astray(_tracked()) == set()


def test_what_a_program_left_behind_is_found() -> None:
    """A crashed JVM's report, once added with everything else."""
    assert _astray(["relay/log.py", ".gitignore", "hs_err_pid1.log"]) == {"hs_err_pid1.log"}


def _unmerged(text: str) -> list[str]:
    """Lines that a merge left where two changes met."""
    return re.findall(r"^(?:<{7}|>{7}) .*$", text, re.MULTILINE)


def test_no_file_holds_both_sides_of_a_merge() -> None:
    texts = {one: (ROOT / one).read_text(errors="replace") for one in _tracked()}
    assert [name for name, text in texts.items() if _unmerged(text)] == []


def test_both_sides_of_a_merge_are_found() -> None:
    """Negative control."""
    assert _unmerged(f"a\n{'<' * 7} HEAD\nb\n{'=' * 7}\nc\n") == [f"{'<' * 7} HEAD"]


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


def test_the_rooms_of_decisions_are_marked_as_pure() -> None:
    """None of them loses its mark unseen."""
    assert {str(Path(m).parent) for m in pure()} >= PURE_ROOMS


@pytest.mark.parametrize("module", pure())
def test_a_pure_module_reaches_out_to_nothing(module: str) -> None:
    """It uses no clock, chance, file, process or thread."""
    assert list(impurities(source(module))) == REACHING_OUT.get(module, [])


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Who imports whom, and which packages from outside."""
    return grimp.build_graph("relay", "loader", include_external_packages=True)


def test_no_pure_module_imports_a_client(graph: grimp.ImportGraph) -> None:
    """Not by any way."""
    found = {m: client_imports(graph, dotted(m)) for m in pure()}
    assert {m: clients for m, clients in found.items() if clients} == {}


def test_a_client_behind_another_module_is_found(graph: grimp.ImportGraph) -> None:
    """Negative control: relay.kafka.topics imports the client, and relay.cli.run by others."""
    assert "confluent_kafka" in client_imports(graph, "relay.kafka.topics")
    assert "confluent_kafka" in client_imports(graph, "relay.process.takeover")


@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "def f():\n    import time as t",
        "from time import time",
        "datetime.now()",
        "uuid.uuid4()",
        "import random",
        "import os.path",
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


def classes(texts: dict[str, str]) -> dict[str, list[str]]:
    """Where each class name is defined, nested classes included."""
    places: dict[str, list[str]] = {}
    for module, text in texts.items():
        for node in ast.walk(tree(text)):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(module)
    return places


def several_meanings(texts: dict[str, str]) -> dict[str, list[str]]:
    """Class names that are defined more than once."""
    return {name: where for name, where in classes(texts).items() if len(where) > 1}


def test_a_class_name_means_one_thing() -> None:
    """Whoever reads a class name need not ask in which module."""
    assert several_meanings({m: source(m) for m in written()}) == {}


def test_a_class_name_with_two_meanings_is_found() -> None:
    """Negative control: in two modules, in one, and within a function."""
    once, twice = "class Facts: ...", "def f():\n    class Facts: ..."
    assert several_meanings({"a": once, "b": twice}) == {"Facts": ["a", "b"]}
    assert several_meanings({"a": f"{once}\n{once}"}) == {"Facts": ["a", "a"]}
    assert several_meanings({"a": once, "b": "class Fact: ..."}) == {}


def in_dialect(paths: Iterable[str]) -> list[str]:
    """Modules and test files that are named with a word of DIALECT alone."""
    return [path for path in paths if Path(path).stem.removeprefix("test_") in DIALECT]


def undecided(text: str) -> list[str]:
    """Texts that leave to the reader whether there is one or several, as `block(s)`."""
    texts = [n.value for n in ast.walk(tree(text)) if isinstance(n, ast.Constant)]
    return [one for one in texts if isinstance(one, str) and re.search(r"[a-z]\(s\)", one)]


@pytest.mark.parametrize("module", written())
def test_texts_say_one_or_several(module: str) -> None:
    """By relay.program.plural, or in words that need neither."""
    assert undecided(source(module)) == []


def test_the_page_says_one_or_several() -> None:
    assert re.findall(r"\w+\(s\)[`,\"]", source("relay/operate/page/page.html")) == []


def test_a_text_that_leaves_it_open_is_found() -> None:
    """Negative control."""
    assert undecided('told = f"{n} block(s) are left"') == [" block(s) are left"]


def test_modules_are_nouns_of_the_field() -> None:
    """A reader learns from a module's name what is in it; test files follow the modules."""
    tests = [str(p.relative_to(ROOT)) for p in (ROOT / "tests").rglob("*.py")]
    assert in_dialect([*written(), *tests]) == []


def test_a_module_in_dialect_is_found() -> None:
    """Negative control: a module and a test file; a field's name that only contains the word."""
    paths = ["relay/heard.py", "tests/unit/test_told.py", "loader/spark/set_aside.py"]
    assert in_dialect(paths) == ["relay/heard.py", "tests/unit/test_told.py"]


def spoken(text: str) -> Iterator[str]:
    """Public functions, methods and their parameters that are named in dialect."""
    for node in ast.walk(tree(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = (
                [] if node.name.startswith("_") else [*node.args.args, *node.args.kwonlyargs]
            )
            yield from {node.name, *(one.arg for one in arguments)} & SPOKEN


def test_functions_are_verbs_of_the_field() -> None:
    """A public name says what is done, or what is given."""
    found = {module: list(spoken(source(module))) for module in written()}
    assert {module: names for module, names in found.items() if names} == {}


def test_a_function_in_dialect_is_found() -> None:
    """Negative control: a function, a parameter and a method; private parameters may be short."""
    text = "def told(): ...\ndef f(heard): ...\nclass A:\n  def said(self): ...\ndef _g(few): ..."
    assert sorted(spoken(text)) == ["heard", "said", "told"]


def unknown_modules(room: str, docstring: str) -> list[str]:
    """What a room's docstring names in backticks and is not there."""
    here = ROOT / room
    return [
        name
        for name in re.findall(r"`([a-z_]+)`", docstring)
        if not any((here / path).exists() for path in (name, f"{name}.py"))
        and name not in {"relay", "loader"}
    ]


@pytest.mark.parametrize("room", sorted(m for m in modules() if m.endswith("__init__.py")))
def test_a_room_names_the_modules_that_it_has(room: str) -> None:
    """Its docstring is the only map, so a module that was renamed is renamed there too."""
    docstring = ast.get_docstring(tree(source(room))) or ""
    assert unknown_modules(str(Path(room).parent), docstring) == []


COMMANDS = "relay/cli"
"""Its rooms are not told module by module: each is the command of its name."""


@pytest.mark.parametrize("room", sorted(m for m in modules() if m.endswith("__init__.py")))
def test_a_room_names_all_of_its_modules(room: str) -> None:
    directory = Path(room).parent
    if directory == Path("relay") or room.startswith(COMMANDS):
        return
    docstring = ast.get_docstring(tree(source(room))) or ""
    assert unnamed_modules(docstring, (ROOT / directory).glob("[a-z]*.py")) == []


def test_a_module_that_its_room_does_not_name_is_found() -> None:
    """Negative control."""
    both = [Path("relay/core/step.py"), Path("relay/core/turns.py")]
    assert unnamed_modules("Read `step` first.", both) == ["turns"]


def unnamed_modules(docstring: str, files: Iterable[Path]) -> list[str]:
    """Modules that a room's docstring does not name."""
    named = {name.rpartition(".")[2] for name in re.findall(r"`([a-z_0-9.]+)`", docstring)}
    return sorted({file.stem for file in files} - named)


def test_a_room_that_names_a_module_of_yesterday_is_found() -> None:
    """Negative control."""
    assert unknown_modules("relay/core", "Read `step`, then `looking`.") == ["looking"]


@pytest.mark.parametrize("room", sorted(m for m in modules() if m.endswith("__init__.py")))
def test_a_room_says_what_is_in_it(room: str) -> None:
    """A room's docstring stands in for a map of its files."""
    assert len(ast.get_docstring(tree(source(room))) or "") > 30


def test_a_room_has_at_most_sixteen_modules() -> None:
    """Beside its `__init__`; at the top of `relay`, six."""
    rooms = Counter(str(Path(m).parent) for m in written() if not m.endswith("__init__.py"))
    assert {room: n for room, n in rooms.items() if n > 16} == {}
    assert rooms["relay"] <= 6
