"""The configuration file of a run: default settings but for what a run needs.

Receives where the servers are, gives a TOML file that `relay run` and `loader run` take.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from relay.dev.clickhouse import toml
from relay.dev.stack import Stack


def write(
    directory: Path,
    app: str,
    stack: Stack,
    topic: str,
    block: Mapping[str, float] | None = None,
    ledger: str = "ledger",
    relay: Mapping[str, float] | None = None,
) -> Path:
    """The file; `block` and `relay` hold settings that differ, `ledger` is its database."""
    file = directory / f"{app}.toml"
    lines = [
        f'app = "{app}"',
        "[kafka]",
        f'bootstrap = "{stack.bootstrap}"',
        "[source]",
        f'topic = "{topic}"',
        'start = "earliest"',
        "[clickhouse]",
        toml(stack.clickhouse),
        "[relay]",
        'member = "bench"',
        *(f"{key} = {value}" for key, value in (relay or {}).items()),
        "[block]",
        *(f"{key} = {value}" for key, value in (block or {}).items()),
        "[loader]",
        f"checkpoint = '{directory / f'{app}.checkpoint'}'",
        f'database = "{ledger}"',
    ]
    file.write_text("\n".join(lines) + "\n")
    return file
