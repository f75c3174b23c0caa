"""`relay verify`: options that only make sense together, refused before any server is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.cli import cli
from relay.cli.config import example
from relay.program.command import run_main


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "relay.toml"
    path.write_text(example())
    return str(path)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--http", "127.0.0.1:0"], "--http serves what --follow finds"),
        (["--once", "--http", "127.0.0.1:0"], "--http serves what --follow finds"),
        (["--once", "--webhook", "http://127.0.0.1:9"], "--webhook gets what --follow finds"),
        (["--once", "--removed", "shop.events"], "--removed concerns the rows that --deep counts"),
        (["--deep", "--removed", "events"], "not a table name: 'events'"),
        (["--follow", "--deep"], "--deep runs once"),
        (["--follow", "--once"], "--follow and --once contradict each other"),
        (["--follow", "--webhook", "host"], "URL is not http or https"),
        (["--follow", "--http", "9466"], "not an address to listen on"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    config: str, options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(cli, "relay", ["verify", config, *options]) == 2
    assert says in capsys.readouterr().err
