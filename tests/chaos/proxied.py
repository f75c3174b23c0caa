"""Brokers that clients reach through a proxy each, beside a direct way for judges and probes.

    client ──► proxy N ──► broker N, listener PROXIED     advertised: the proxy's address
    judge, other brokers ──► broker N, listener PLAINTEXT  advertised: its own

Receives a directory without a stack, gives a running one. Ends what it started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from relay.dev import broker, layout
from relay.dev import stack as dev_stack
from relay.dev.layout import HOST
from relay.dev.stack import Stack
from tests.chaos.proxy import Proxy


@dataclass(frozen=True, slots=True)
class Proxied:
    """A stack and the proxies before its brokers, broker 0's first."""

    stack: Stack
    proxies: tuple[Proxy, ...]

    @property
    def bootstrap(self) -> str:
        """The brokers through their proxies; `stack.bootstrap` is the direct way."""
        return ",".join(proxy.address for proxy in self.proxies)

    def heal(self) -> None:
        """Every fault of every proxy ends."""
        for proxy in self.proxies:
            proxy.heal()


@contextmanager
def proxied(
    directory: Path,
    brokers: int = 1,
    progress: Callable[[str], None] = print,
    *,
    clickhouse: bool = True,
) -> Iterator[Proxied]:
    """A stack whose brokers stand behind proxies; ended with the `with` block.

    Args:
        directory: without a stack.
        brokers: how many.
        progress: told what is done.
        clickhouse: whether its server is started, too.

    Raises:
        MissingTool, ConfigError, Unavailable: as relay.dev.stack.up.
    """
    directory.mkdir(parents=True, exist_ok=True)
    plan, _ = layout.decide(directory, brokers, 0, 0)
    layout.write(directory, plan)
    taken = {*plan.kafka_ports, *plan.controller_ports, plan.clickhouse_port}
    behind = layout.free_ports(brokers, taken)
    with ExitStack() as owned:
        proxies = []
        for index, port in enumerate(behind):
            proxy = Proxy.start((HOST, port))
            owned.callback(proxy.stop)
            proxies.append(proxy)
            extra = directory / f"broker-{index}.extra.properties"
            extra.write_text(
                _listeners(
                    plan.kafka_ports[index], plan.controller_ports[index], port, proxy.address
                ),
                encoding="utf-8",
            )
        owned.callback(dev_stack.down, directory)
        yield Proxied(_up(directory, brokers, progress, clickhouse), tuple(proxies))


def _up(directory: Path, brokers: int, progress: Callable[[str], None], clickhouse: bool) -> Stack:
    if clickhouse:
        return dev_stack.up(directory, progress=progress)
    plan = layout.read(directory)
    assert plan is not None
    for index in range(brokers):
        broker.launch(directory, index, plan)
    for index in range(brokers):  # of several, none answers before the others run
        broker.await_ready(directory, index, plan)
    found = dev_stack.status(directory)
    assert found is not None
    return found


def _listeners(direct: int, controller: int, behind: int, advertised: str) -> str:
    """Broker settings, instead of those with one listener."""
    return (
        f"listeners=PLAINTEXT://{HOST}:{direct},CONTROLLER://{HOST}:{controller},"
        f"PROXIED://{HOST}:{behind}\n"
        f"advertised.listeners=PLAINTEXT://{HOST}:{direct},PROXIED://{advertised}\n"
        "listener.security.protocol.map="
        "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT\n"
    )
