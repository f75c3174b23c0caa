"""The whole demo, smaller, as a user starts it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sysconfig
import time
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.servers
RELAY = Path(sysconfig.get_path("scripts")) / "relay"


def running_in(directory: Path) -> list[str]:
    """Command lines of processes that have to do with the demo's directory."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line = " ".join(process.cmdline())
            if str(directory) in line and process.pid != os.getpid():
                found.append(line)
    return found


def start(directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [RELAY, "demo", "--rows", "20000", "--directory", directory],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_demo_ends_with_yes_and_leaves_nothing_running(tmp_path: Path) -> None:
    """Killed in the middle, every row arrives once; exit status 0, nobody stays behind."""
    directory = tmp_path / "demo"
    demo = start(directory)
    text, _ = demo.communicate(timeout=240)
    assert demo.returncode == 0, text
    assert text.splitlines()[-1] == "EXACTLY ONCE: yes"
    killed = re.search(r"SIGKILL to demo-0 and the loader \((\d+) processes\): ([\d,]+)", text)
    assert killed is not None, text
    assert int(killed[1]) >= 3  # the relay, the loader, its JVM
    assert 0 < int(killed[2].replace(",", "")) < 20_000
    assert "Newark Liberty" in text
    assert running_in(directory) == []


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_an_interrupted_demo_leaves_nothing_running(tmp_path: Path, number: int) -> None:
    """Ctrl-C or SIGTERM while everything runs: exit status 130, and all of it ends."""
    directory = tmp_path / "demo"
    demo = start(directory)
    deadline = time.monotonic() + 120
    while not (directory / "loader.log").exists():
        assert time.monotonic() < deadline
        assert demo.poll() is None
        time.sleep(0.1)
    assert running_in(directory)
    demo.send_signal(number)
    text, _ = demo.communicate(timeout=90)
    assert demo.returncode == 130, text
    assert running_in(directory) == []
