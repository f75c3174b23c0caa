"""What a stack's directory remembers: how many brokers, and every port.

Ports are chosen once and kept, so that a restart is found under the address
that clients already hold.
"""

from __future__ import annotations

import json
import random
import socket
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

from relay.errors import ConfigError

HOST = "127.0.0.1"
_FILE = "stack.json"
# Below the range from which systems take ports for outgoing connections (Linux: 32768 and up),
# or a stopped server's port could be gone when it comes back.
PORTS = range(15_000, 32_000)


@dataclass(frozen=True, slots=True)
class Layout:
    """The fixed facts of one stack."""

    cluster_id: str
    kafka_ports: list[int]
    controller_ports: list[int]
    clickhouse_port: int
    clickhouse_tcp_port: int = 0
    """Of the native protocol; 0: of a directory that knew none, until the next `up`."""

    @property
    def bootstrap(self) -> str:
        """The brokers, as clients want them."""
        return ",".join(f"{HOST}:{port}" for port in self.kafka_ports)

    @property
    def clickhouse_url(self) -> str:
        """The server's address over HTTP."""
        return f"http://{HOST}:{self.clickhouse_port}"


def read(directory: Path) -> Layout | None:
    """Return what the directory remembers; None: no stack was there. Damage is a ConfigError."""
    path = directory / _FILE
    try:
        return Layout(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"{path} is damaged: {error}", f"remove {directory} and start anew"
        ) from error


def decide(
    directory: Path,
    brokers: int | None,
    kafka_port: int,
    clickhouse_port: int,
    clickhouse_tcp_port: int = 0,
) -> tuple[Layout, bool]:
    """Return the remembered layout with what is asked for now; and whether it changed.

    Args:
        directory: of the stack.
        brokers: how many; None: as remembered, else 1.
        kafka_port: of the first broker, the others follow; 0: as remembered, else a free one.
        clickhouse_port: of HTTP; 0: as remembered, else a free one.
        clickhouse_tcp_port: of the native protocol; 0: as remembered, else a free one.

    Raises:
        ConfigError: another number of brokers than the data is for.
    """
    old = read(directory)
    if old is None:
        return _choose(brokers or 1, kafka_port, clickhouse_port, clickhouse_tcp_port), True
    count = len(old.kafka_ports)
    if brokers is not None and brokers != count:
        raise ConfigError(
            f"{directory} holds a cluster of {count}, not of {brokers}",
            "use another --directory, or remove this one",
        )
    new = replace(
        old,
        kafka_ports=[*range(kafka_port, kafka_port + count)] if kafka_port else old.kafka_ports,
        clickhouse_port=clickhouse_port or old.clickhouse_port,
        clickhouse_tcp_port=clickhouse_tcp_port
        or old.clickhouse_tcp_port
        or free_ports(1, {*old.kafka_ports, *old.controller_ports, old.clickhouse_port})[0],
    )
    return new, new != old


def write(directory: Path, layout: Layout) -> None:
    """Remember a layout."""
    directory.mkdir(parents=True, exist_ok=True)
    partial = directory / f"{_FILE}.part"
    partial.write_text(json.dumps(asdict(layout), indent=1), encoding="utf-8")
    partial.rename(directory / _FILE)


def _choose(
    brokers: int, kafka_port: int, clickhouse_port: int, clickhouse_tcp_port: int
) -> Layout:
    if not 1 <= brokers <= 9:
        raise ConfigError(f"{brokers} brokers asked for", "ask for 1 to 9; 3 tolerate a failure")
    kafka_ports = [*range(kafka_port, kafka_port + brokers)] if kafka_port else []
    taken = {*kafka_ports, clickhouse_port, clickhouse_tcp_port}
    missing = 2 * brokers - len(kafka_ports) + (not clickhouse_port) + (not clickhouse_tcp_port)
    chosen = free_ports(missing, taken)
    return Layout(
        cluster_id=urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="),
        kafka_ports=kafka_ports or [chosen.pop() for _ in range(brokers)],
        controller_ports=[chosen.pop() for _ in range(brokers)],
        clickhouse_port=clickhouse_port or chosen.pop(),
        clickhouse_tcp_port=clickhouse_tcp_port or chosen.pop(),
    )


def free_ports(count: int, taken: Collection[int] = ()) -> list[int]:
    """Return so many ports of PORTS that nobody listens on now, without those that are taken."""
    candidates = random.sample(PORTS, len(PORTS))
    return list(islice((p for p in candidates if p not in taken and is_free(p)), count))


def is_free(port: int) -> bool:
    """Return whether a server could listen there now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
