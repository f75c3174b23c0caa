"""A demo that somebody interrupts. (tests/package has one that ends by itself.)"""

from __future__ import annotations

import signal
import subprocess
import sysconfig
import time
from pathlib import Path

import pytest

from tests.broker.pipeline import wait_until
from tests.demo.left_running import running_in

pytestmark = pytest.mark.servers
RELAY = Path(sysconfig.get_path("scripts")) / "relay"


def start(directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [RELAY, "demo", "--rows", "20000", "--directory", directory],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_an_interrupted_demo_leaves_nothing_running(tmp_path: Path, number: int) -> None:
    """Ctrl-C or SIGTERM while everything runs: exit status 130, and all of it ends."""
    directory = tmp_path / "demo"
    demo = start(directory)
    deadline = time.monotonic() + 300
    while not (directory / "loader.log").exists():
        assert time.monotonic() < deadline
        assert demo.poll() is None
        time.sleep(0.1)
    assert running_in(directory)
    demo.send_signal(number)
    text, _ = demo.communicate(timeout=300)
    assert demo.returncode == 130, text
    wait_until(lambda: running_in(directory) == [], "all of it ended", 20)
