"""Who asks for help is shown how it is typed."""

from __future__ import annotations

import click
import pytest

from relay.cli.dead.command import dead
from relay.cli.schema.command import schema

COMMANDS = [(group, name) for group in (dead, schema) for name in sorted(group.commands)]


@pytest.mark.parametrize(("group", "name"), COMMANDS)
def test_every_command_shows_itself_in_use(group: click.Group, name: str) -> None:
    """`--help` holds a line that begins as the command does."""
    text = group.commands[name].help or ""
    lines = [line.strip() for line in text.splitlines()]
    assert any(line.startswith(f"relay {group.name} {name}") for line in lines)
