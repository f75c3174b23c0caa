"""A module in a wrong room turns import-linter red, and every module stands in a layer."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_tidy import ROOT, dotted, modules

LINT_IMPORTS = Path(sys.executable).parent / "lint-imports"
RELAY = "A room of the relay imports only rooms that stand below it"
OPERATE = "Of the rooms for operators, those that change something stand above those that look"
LOADER = "A room of the loader imports only rooms that stand below it"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The product's packages and their contracts; who puts a module elsewhere puts it back."""
    checkout = tmp_path_factory.mktemp("rooms")
    for package in ("relay", "loader"):
        ignored = shutil.ignore_patterns("__pycache__", "docs")
        shutil.copytree(ROOT / package, checkout / package, ignore=ignored)
    shutil.copy(ROOT / "setup.cfg", checkout)
    return checkout


def broken(checkout: Path) -> tuple[set[str], str]:
    """The contracts that lint-imports finds broken, and all that it says, on one line."""
    command = [LINT_IMPORTS, "--no-logo", "--no-cache"]
    found = subprocess.run(
        command, cwd=checkout, capture_output=True, text=True, timeout=60, check=False
    )
    said = " ".join(found.stdout.split())
    red = {name for name in contracts(ROOT / "setup.cfg") if f"{name} BROKEN" in said}
    assert found.returncode == (1 if red else 0), f"{found.stdout}\n{found.stderr}"
    return red, said


def test_the_copy_is_green(copy: Path) -> None:
    """What is red below is red for the module that was moved."""
    assert broken(copy)[0] == set()


@pytest.mark.parametrize(
    ("module", "room", "contract", "arrow"),
    [
        # a decision that asks the servers
        ("relay/process/takeover.py", "relay/core", RELAY, "relay.core.takeover -> relay.kafka"),
        # what reads for operators, among the rows
        ("relay/operate/view/status.py", "relay/rows", RELAY, "relay.rows.status -> relay.operate"),
        # what writes the journal, in a room that only looks
        (
            "relay/operate/rewind/rewind.py",
            "relay/operate/dead",
            OPERATE,
            "relay.operate.dead.rewind -> relay.operate.rewind",
        ),
        # an adapter around the plan, beside the plan
        ("loader/blocks/attempt.py", "loader/core", LOADER, "loader.core.attempt -> loader.click"),
        # what plans Spark's micro-batches, in the room of statements
        ("loader/spark/micro_batch.py", "loader/clickhouse", LOADER, "micro_batch -> loader.spark"),
    ],
)
def test_a_module_in_a_wrong_room_is_found(
    copy: Path, module: str, room: str, contract: str, arrow: str
) -> None:
    """Negative control: the contract of its rooms is broken, and the arrow upwards is named."""
    moved = (copy / module).rename(copy / room / Path(module).name)

    red, said = broken(copy)
    moved.rename(copy / module)

    assert contract in red
    assert arrow in said


@pytest.mark.parametrize(
    ("module", "imported", "contract"),
    [
        ("loader/blocks/fetch.py", "relay.process", "The loader takes from the relay only what"),
        ("relay/process/loop.py", "pandas", "Relay and verifier run where Spark and pandas are"),
        ("relay/operate/verify/audit.py", "relay.core.step", "The verifier shares record formats"),
        ("relay/cli/__init__.py", "loader.console", "The relay takes nothing from the loader"),
    ],
)
def test_a_forbidden_import_is_found(copy: Path, module: str, imported: str, contract: str) -> None:
    """Negative control of the contracts that are no layers."""
    written = (copy / module).read_text(encoding="utf-8")
    (copy / module).write_text(f"{written}\nimport {imported}\n", encoding="utf-8")

    red, _ = broken(copy)
    (copy / module).write_text(written, encoding="utf-8")

    assert [name for name in red if name.startswith(contract)]


@pytest.mark.parametrize(
    ("container", "contract"), [("relay", RELAY), ("relay/operate", OPERATE), ("loader", LOADER)]
)
def test_a_room_without_a_layer_is_found(copy: Path, container: str, contract: str) -> None:
    """Negative control: a room that no layer names, though it imports nothing."""
    room = copy / container / "attic"
    room.mkdir()
    (room / "__init__.py").touch()

    red, said = broken(copy)
    shutil.rmtree(room)

    assert red == {contract}
    assert f"not listed as layers: - {container.replace('/', '.')}.attic" in said


def contracts(path: Path) -> dict[str, dict[str, str]]:
    """The contracts of a configuration file, by name."""
    config = configparser.ConfigParser()
    config.read(path, encoding="utf-8")
    found = [config[each] for each in config.sections() if each.startswith("importlinter:contract")]
    return {each["name"]: dict(each) for each in found}


def layers(path: Path) -> dict[str, set[str]]:
    """The modules that stand in a layer, by the package that contains them."""
    return {
        contract["containers"]: {
            f"{contract['containers']}.{name.strip()}"
            for line in contract["layers"].splitlines()
            for name in line.split("|")
            if name.strip()
        }
        for contract in contracts(path).values()
        if contract["type"] == "layers"
    }


def loose(names: list[str], of: dict[str, set[str]]) -> list[str]:
    """The modules that stand in no layer; a package that is cut into layers need not."""
    rooms = [room for found in of.values() for room in found]
    return [
        name
        for name in names
        if name not in of and not any(f"{name}.".startswith(f"{room}.") for room in rooms)
    ]


def test_every_module_stands_in_a_layer() -> None:
    """And every layer that is named is there, and its contract is exhaustive."""
    names = [dotted(module) for module in modules()]
    found = layers(ROOT / "setup.cfg")
    assert found.keys() == {"relay", "relay.operate", "loader"}
    assert loose(names, found) == []
    assert {room for of in found.values() for room in of} <= set(names)
    of_layers = [each for each in contracts(ROOT / "setup.cfg").values() if "layers" in each]
    assert [each.get("exhaustive") for each in of_layers] == ["True"] * 3


def test_a_module_in_no_layer_is_found() -> None:
    """Negative control: beside the rooms; the rooms themselves and what is in them pass."""
    names = ["relay", "relay.core", "relay.core.step", "relay.corelike", "loader.core.plan"]
    assert loose(names, {"relay": {"relay.core"}}) == ["relay.corelike", "loader.core.plan"]
