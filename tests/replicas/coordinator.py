"""ZooKeeper, which replicas agree through: out of the jars that pyspark ships, one process."""

from __future__ import annotations

import socket
from pathlib import Path

import pyspark

from relay.dev import process
from relay.program import java

NAME = "zookeeper"
HOST = "127.0.0.1"
TICK_MS = 500
START_SECONDS = 60.0
_JARS = (
    *("zookeeper", "netty-", "slf4j-api", "log4j", "metrics-core", "snappy-java"),
    *("commons-io", "commons-lang3"),
)


def start(directory: Path, port: int) -> None:
    """Start it; what it was told before is kept.

    Raises:
        Unavailable: it does not answer.
    """
    (directory / "zookeeper").mkdir(parents=True, exist_ok=True)
    config = directory / "zookeeper.cfg"
    config.write_text(
        f"tickTime={TICK_MS}\ndataDir={directory}/zookeeper\nclientPort={port}\n"
        f"clientPortAddress={HOST}\nadmin.enableServer=false\nmaxClientCnxns=0\n"
        "4lw.commands.whitelist=*\n",
        encoding="utf-8",
    )
    jars = Path(pyspark.__path__[0]) / "jars"
    needed = sorted(str(jar) for beginning in _JARS for jar in jars.glob(f"{beginning}*.jar"))
    command = [str(java.require()), "-Xmx256m", "-cp", ":".join(needed)]
    command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]
    process.spawn(directory, NAME, command)
    process.await_ready(directory, NAME, lambda: answers(port), START_SECONDS)


def end(directory: Path, *, kill: bool = True) -> bool:
    """End it; whether it ran."""
    return process.end(directory, NAME, kill=kill)


def answers(port: int) -> bool:
    """Whether it says that it is well."""
    try:
        with socket.create_connection((HOST, port), 1) as asking:
            asking.sendall(b"ruok")
            return asking.recv(16) == b"imok"
    except OSError:
        return False
