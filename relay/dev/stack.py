"""Brokers and the ClickHouse endpoint of one directory, as one thing.

Receives: a directory and, at the first time, sizes and ports. Gives: servers
that have answered. Ends only what it started itself (process.py). The data
stays in the directory until somebody removes it.
"""

from __future__ import annotations

import fcntl
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from relay.dev import broker, jars, java, layout, process
from relay.dev.layout import Layout
from relay.errors import ConfigError, MissingTool, Unavailable

ENDPOINT = "clickhouse"
_ENDPOINT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack as found; a pid is None where that server does not run."""

    directory: Path
    bootstrap: str
    clickhouse_url: str
    broker_pids: tuple[int | None, ...]
    endpoint_pid: int | None

    @property
    def complete(self) -> bool:
        """Whether every server runs."""
        return None not in (*self.broker_pids, self.endpoint_pid)

    @property
    def config_hint(self) -> str:
        """The lines of a configuration file that reach this stack."""
        copies = min(3, len(self.broker_pids))
        return (
            f'[kafka]\nbootstrap = "{self.bootstrap}"\nreplication = {copies}\n\n'
            f'[clickhouse]\nurl = "{self.clickhouse_url}"\n'
        )


def up(
    directory: Path,
    *,
    brokers: int | None = None,
    kafka_port: int = 0,
    clickhouse_port: int = 0,
    progress: Callable[[str], None],
) -> Stack:
    """Start what does not run yet, and wait until all of it answers.

    Args:
        directory: data, logs and pids go there; made if missing, reused if not.
        brokers: how many; None: as the directory remembers, else 1.
        kafka_port: of the first broker, the others follow; 0: as remembered, else a free one.
        clickhouse_port: 0: as remembered, else a free one.
        progress: told what is done, in short lines.

    Raises:
        MissingTool: no Java, no chdb, or jars that cannot be fetched.
        ConfigError: the directory holds another kind of stack.
        Unavailable: a server ended at start or does not answer; with its log's tail.
    """
    directory = directory.resolve()
    java.require()
    if find_spec("chdb") is None:
        raise MissingTool("chdb is not installed", "pip install 'block-relay[demo]'")
    jars.classpath(progress)
    directory.mkdir(parents=True, exist_ok=True)
    with _alone(directory):
        plan, changed = layout.decide(directory, brokers, kafka_port, clickhouse_port)
        if changed:
            _refuse_if_running(directory, plan)
            layout.write(directory, plan)
        _start(directory, plan, progress)
    return _look(directory, plan)


def status(directory: Path) -> Stack | None:
    """The stack as it is now, or None if there never was one."""
    directory = directory.resolve()
    plan = layout.read(directory)
    return None if plan is None else _look(directory, plan)


def down(directory: Path) -> list[str]:
    """End what runs, and wait until it is gone; names and pids of what was ended."""
    directory = directory.resolve()
    if layout.read(directory) is None:
        return []
    with _alone(directory):
        plan = layout.read(directory)
        names = [] if plan is None else _names(plan)
        # A signal to all first: in a quorum, the last one standing waits in vain for the others.
        running = [(name, found) for name in names if (found := process.find(directory, name))]
        for _, found in running:
            process.ask_to_end(found)
        for name in names:
            process.end(directory, name)
    return [f"{name} (pid {found.pid})" for name, found in running]


def _names(plan: Layout) -> list[str]:
    return [*(broker.name(index) for index in range(len(plan.kafka_ports))), ENDPOINT]


def _start(directory: Path, plan: Layout, progress: Callable[[str], None]) -> None:
    launched = []
    try:
        for index in range(len(plan.kafka_ports)):
            if process.find(directory, broker.name(index)) is None:
                progress(f"starting {broker.name(index)} on port {plan.kafka_ports[index]}")
                broker.launch(directory, index, plan)
                launched.append(broker.name(index))
        if process.find(directory, ENDPOINT) is None:
            progress(f"starting {ENDPOINT} on port {plan.clickhouse_port}")
            launch_endpoint(directory, plan)
            launched.append(ENDPOINT)
        for index in range(len(plan.kafka_ports)):
            broker.await_ready(directory, index, plan)
        process.await_ready(
            directory, ENDPOINT, lambda: _pings(plan.clickhouse_url), _ENDPOINT_SECONDS
        )
    except BaseException:  # also Ctrl-C: a start that failed leaves nothing of its own behind
        for name in launched:
            process.end(directory, name, kill=True)
        raise


def launch_endpoint(directory: Path, plan: Layout) -> int:
    """Start the ClickHouse endpoint without waiting for it; its pid."""
    if not layout.is_free(plan.clickhouse_port):
        raise Unavailable(
            f"port {plan.clickhouse_port} of {ENDPOINT} is in use by another process",
            "end that process, or choose another with --clickhouse-port",
        )
    data = directory / ENDPOINT
    command = [sys.executable, "-m", "relay.dev.endpoint", "--path", str(data)]
    return process.spawn(directory, ENDPOINT, [*command, "--port", str(plan.clickhouse_port)])


def _pings(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/ping", timeout=2) as answer:  # noqa: S310 - our own http address
            return bool(answer.status == 200)
    except OSError:
        return False  # not yet; await_ready has the deadline


def _look(directory: Path, plan: Layout) -> Stack:
    found = [process.find(directory, name) for name in _names(plan)]
    pids = [None if server is None else server.pid for server in found]
    return Stack(directory, plan.bootstrap, plan.clickhouse_url, tuple(pids[:-1]), pids[-1])


def _refuse_if_running(directory: Path, plan: Layout) -> None:
    running = [name for name in _names(plan) if process.find(directory, name)]
    if running:
        raise ConfigError(
            f"{', '.join(running)} of {directory} run on other ports than asked for",
            "run `relay dev down` first, or leave the ports out",
        )


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Hold the directory: two `up` at once start one stack."""
    with (directory / "lock").open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
