"""The README says what the programs say."""

from __future__ import annotations

import re
from pathlib import Path

from relay.cli.config import example
from relay.errors import RelayError
from relay.schema.types import column_type, scalar
from relay.schema.types.column_type import parse_type

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONFIGURATION = (ROOT / "relay/docs/configuration.md").read_text(encoding="utf-8")
OPERATIONS = (ROOT / "relay/docs/operations.md").read_text(encoding="utf-8")
MESSAGES = (ROOT / "relay/docs/messages.md").read_text(encoding="utf-8")


def test_the_configuration_reference_is_what_the_program_prints() -> None:
    """`relay config init` and the README's reference are one text."""
    assert example().rstrip() in CONFIGURATION


def test_every_exit_status_is_documented() -> None:
    """Each error's status stands in the README's table."""
    statuses = {error.exit_code for error in RelayError.__subclasses__()} | {0, 70}

    assert all(f"\n| {status} | " in OPERATIONS for status in statuses)


def test_the_commands_at_the_top_are_single_lines() -> None:
    """Both marked commands begin with the environment and need nothing but Python."""
    for mark in ("<!-- demo command -->", "<!-- test command -->"):
        block = README.split(mark)[1].split("```")[1]
        assert block.startswith("sh\npython3 -m venv .venv && ")
        assert len(block.strip().splitlines()) == 2


# What stands for a type in the README's table, and its protobuf and Arrow types.
_PARTS = {
    "T": ("UInt8", "uint32", "uint8"),
    "K": ("String", "string", "string"),
    "V": ("UInt8", "uint32", "uint8"),
}
_SIZES = {"P": "9", "S": "2", "N": "5", "f": "sum"}


def _filled(text: str, which: int) -> str:
    """The text with a type for each letter that stands for one."""
    for letter, kinds in _PARTS.items():
        text = re.sub(rf"\b{letter}\b", kinds[which], text)
    for letter, size in _SIZES.items():
        text = re.sub(rf"\b{letter}\b", size, text)
    return text


def _split(cell: str) -> list[str]:
    """What stands between the commas outside of brackets."""
    return re.findall(r"(?:[^,(<]|\([^()]*(?:\([^()]*\)[^()]*)*\)|<(?:[^<>]|<[^>]*>)*>+)+", cell)


def _type_rows() -> list[list[str]]:
    table = MESSAGES.split("<!-- types -->")[1].strip().split("\n\n")[0]
    return [row.strip("| ").split(" | ") for row in table.splitlines()[2:]]


def test_the_table_of_types_is_what_the_code_does() -> None:
    """For every type in the table, protobuf and Arrow are as it says, and it says "dead letter"
    just where the code refuses values that the field holds."""
    alone = {_filled(name, 0) for row in _type_rows() for name in _split(row[0])}
    alone = {name.strip() for name in alone if name.split("(")[0].strip() in scalar.MAKERS}
    for names, protobuf, arrow, outside in _type_rows():
        listed = [_filled(name.strip(), 0) for name in _split(names)]
        protos = [_filled(proto.strip(), 1) for proto in _split(protobuf)]
        arrows = [_filled(one.strip(), 2) for one in _split(arrow)]
        for at, text in enumerate(listed):
            kind = parse_type(text)
            assert kind.proto == protos[at % len(protos)], text
            shown = re.sub(r"\bitem: ", "", str(kind.arrow))
            assert arrow.startswith("a struct") or shown == arrows[at % len(arrows)], text
            if text in alone:
                # That a String is UTF-8 is protobuf's own to check.
                refuses = kind.check is not None or text == "String"
                assert ("dead letter" in outside) == refuses, text


def test_every_type_stands_in_the_table() -> None:
    """No type that the code knows is missing."""
    named = {name.split("(")[0].strip() for row in _type_rows() for name in _split(row[0])}
    assert named == {*scalar.MAKERS, *column_type.COMPOSED}
