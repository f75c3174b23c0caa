"""The README says what the programs say."""

from __future__ import annotations

from pathlib import Path

from relay.cli.config import example
from relay.errors import RelayError

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_configuration_reference_is_what_the_program_prints() -> None:
    """`relay config init` and the README's reference are one text."""
    assert example().rstrip() in README


def test_every_exit_status_is_documented() -> None:
    """Each error's status stands in the README's table."""
    statuses = {error.exit_code for error in RelayError.__subclasses__()} | {0, 70}

    assert all(f"\n| {status} | " in README for status in statuses)


def test_the_commands_at_the_top_are_single_lines() -> None:
    """Both marked commands begin with the environment and need nothing but Python."""
    for mark in ("<!-- demo command -->", "<!-- test command -->"):
        block = README.split(mark)[1].split("```")[1]
        assert block.startswith("sh\npython3 -m venv .venv && ")
        assert len(block.strip().splitlines()) == 2
