"""`loader supersede` ends with the `relay rewind` that started it."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from loader.operate.starter import end_with_starter
from relay.errors import ConfigError
from relay.records_pb2 import Commit
from tests.rewind.test_cli import CONFIG, record

if TYPE_CHECKING:
    from pathlib import Path

STARTER = """
import sys
from relay.operate.rewind.servers import _run
_run([sys.executable, "-m", "loader.cli", "supersede", sys.argv[1], "--blocks", "-", "--at", "1"],
     sys.argv[2])
"""


def test_killed_relay_rewind_takes_its_loader_along(tmp_path: Path) -> None:
    """The real command, which waits for the answer of a server that gives none."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        config = tmp_path / "relay.toml"
        url = f"127.0.0.1:{server.getsockname()[1]}"
        config.write_text(CONFIG.replace('url = "http://127.0.0.1:1"', f'url = "http://{url}"'))
        lines = record(Commit(app="shop"))
        with subprocess.Popen([sys.executable, "-c", STARTER, config, lines]) as starter:
            asked, _ = server.accept()
            with asked:
                asked.settimeout(60)
                assert asked.recv(1 << 16), "it waits for the answer to this"
                asked.settimeout(10)
                starter.kill()
                while asked.recv(1 << 16):
                    pass  # the system closes what a process that ended had open


def test_no_pipe_to_watch_is_refused() -> None:
    with pytest.raises(ConfigError, match="descriptor 987 is not a pipe"):
        end_with_starter(987)
