"""Several relay processes: where each serves, and what becomes of one that ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from relay.cli.run import commands
from relay.config import settings_file
from relay.errors import ConfigError
from relay.process import several
from relay.process.several import listen_arguments, supervise
from tests.broker.pipeline import wait_until
from tests.config.test_load import GOOD, write
from tests.config.test_pipelines import TWO


@pytest.mark.parametrize(
    ("listen", "addresses"),
    [
        (None, [[], []]),
        ("127.0.0.1:9464", [["--http", "127.0.0.1:9464"], ["--http", "127.0.0.1:9465"]]),
        ("[::1]:80", [["--http", "[::1]:80"], ["--http", "[::1]:81"]]),
        (":0", [["--http", ":0"], ["--http", ":0"]]),
    ],
)
def test_each_process_has_the_port_behind_the_one_before(
    listen: str | None, addresses: list[list[str]]
) -> None:
    """But for port 0, which is a free one for each."""
    assert [listen_arguments(listen, index) for index in range(2)] == addresses


def test_a_wrong_address_is_told() -> None:
    with pytest.raises(ConfigError, match="not an address"):
        listen_arguments("9464", 1)


FAKE = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
_, run, place, status = sys.argv
with pathlib.Path(place).open("a") as log:
    print("started", file=log)
if status != "goes on":
    sys.exit(int(status))
time.sleep(600)
"""


@pytest.fixture
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of `relay`: notes each start, then ends as its second argument says."""
    monkeypatch.setattr(several, "PROGRAM", [sys.executable, "-c", FAKE])
    monkeypatch.setattr("relay.program.supervision.FIRST_PAUSE_SECONDS", 0.01)


def starts(place: Path) -> int:
    return place.read_text().count("started") if place.exists() else 0


@pytest.mark.usefixtures("_fakes")
def test_the_end_of_one_ends_no_other(tmp_path: Path) -> None:
    """One is away and started again and again, one is refused and left, one goes on; then
    SIGTERM ends what runs, and the worst status is the whole's."""
    away, refused, well = (tmp_path / name for name in ("away", "refused", "well"))
    gone = threading.Event()

    def then_stop() -> None:
        wait_until(lambda: starts(away) >= 4, "the fourth start of the one that is away")
        wait_until(lambda: starts(well) == 1, "the start of the one that goes on")
        gone.set()
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=then_stop)
    thread.start()
    children = {"away": [str(away), "4"], "refused": [str(refused), "5"]}
    status = supervise({**children, "well": [str(well), "goes on"]})
    thread.join()
    assert gone.is_set()
    assert status == 5
    assert (starts(refused), starts(well)) == (1, 1)


@pytest.mark.usefixtures("_fakes")
def test_when_none_is_started_again_it_ends(tmp_path: Path) -> None:
    children = {name: [str(tmp_path / name), status] for name, status in (("a", "2"), ("b", "6"))}
    assert supervise(children) == 6


def test_each_pipeline_has_processes_members_and_an_address_of_its_own(tmp_path: Path) -> None:
    """In the file's order; a member's name says its number where there are several."""
    path = write(tmp_path, GOOD + TWO)
    every = settings_file.pipelines(path, {"relay.member": "m"})
    alone = commands(path, every, 1, "127.0.0.1:90", ["--start", "latest"])
    assert alone == {
        f"{name}, m": [
            *(str(path), "--pipeline", name, "--member", "m", "--start", "latest"),
            *("--http", f"127.0.0.1:{port}"),
        ]
        for name, port in (("east", 90), ("west", 91))
    }
    two = commands(path, every, 2, None, [])
    assert list(two) == ["east, m-0", "east, m-1", "west, m-0", "west, m-1"]
    assert two["west, m-1"] == [str(path), "--pipeline", "west", "--member", "m-1"]
    (only,) = settings_file.pipelines(write(tmp_path, GOOD), {"relay.member": "m"})
    assert commands(path, [only], 2, None, []) == {
        f"m-{index}": [str(path), "--member", f"m-{index}"] for index in range(2)
    }
