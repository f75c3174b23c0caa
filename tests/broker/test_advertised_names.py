"""A broker that advertises a name nobody resolves: who answered, what it said, and how it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from relay.dev import broker, layout
from relay.kafka.connection_errors import unresolved
from tests.broker.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relay.config.server_settings import ClickHouse

NAME = "broker-7.nowhere.invalid"
PROPERTIES = """
listeners=PLAINTEXT://{host}:{client},CONTROLLER://{host}:{controller},ELSEWHERE://{host}:{port}
advertised.listeners=PLAINTEXT://{host}:{client},ELSEWHERE://{name}:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,ELSEWHERE:PLAINTEXT
"""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An address whose broker advertises NAME."""
    directory = tmp_path_factory.mktemp("elsewhere")
    plan, _ = layout.decide(directory, 1, 0, 0)
    layout.write(directory, plan)
    port = plan.clickhouse_port  # free: no ClickHouse is started here
    text = PROPERTIES.format(
        host=layout.HOST,
        client=plan.kafka_ports[0],
        controller=plan.controller_ports[0],
        port=port,
        name=NAME,
    )
    (directory / "extra.properties").write_text(text, "utf-8")
    try:
        broker.start(directory, 0)
        yield f"{layout.HOST}:{port}"
    finally:
        broker.kill(directory, 0)


@pytest.mark.parametrize(
    "command", ["run", "doctor", pytest.param("status", marks=pytest.mark.long)]
)
def test_the_name_is_told(
    elsewhere: str, clickhouse: ClickHouse, tmp_path: Path, command: str
) -> None:
    """Told was "check kafka.bootstrap and that the brokers are up", both of which were right."""
    pipeline = Pipeline(elsewhere, clickhouse, "shop", "shop", tmp_path)
    path = pipeline.config(wait_for_servers_seconds=1.0)
    program = [Path(sys.executable).parent / "relay", command, path]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    said = " ".join((ended.stdout + ended.stderr).replace("│", " ").split())
    assert ended.returncode == 4, said
    assert f"{elsewhere} answers and advertises brokers whose names cannot be resolved" in said
    assert NAME in said
    assert "correct advertised.listeners" in said
    assert "that the brokers are up" not in said


def test_which_names_lead_nowhere() -> None:
    def resolve(host: str, _: int) -> None:
        if host == "nowhere":
            raise OSError(-2, "Name or service not known")
        if ".." in host:
            host.encode("idna")

    found = unresolved([("here", 1), ("nowhere", 2), ("a..b", 3)], resolve)
    assert found.keys() == {"nowhere:2", "a..b:3"}
    assert found["nowhere:2"] == "Name or service not known"
