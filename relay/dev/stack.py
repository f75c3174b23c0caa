"""Brokers and the ClickHouse server of one directory, as one thing.

Receives: a directory and, at the first time, sizes and ports. Gives: servers
that have answered. Ends only what it started itself (process.py). The data
stays in the directory until somebody removes it.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from relay.config.server_settings import ClickHouse
from relay.dev import broker, clickhouse, jars, layout, process
from relay.dev.layout import Layout
from relay.errors import ConfigError
from relay.program import java

CLICKHOUSE = clickhouse.NAME


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack as found; a pid is None where that server does not run."""

    directory: Path
    bootstrap: str
    clickhouse: ClickHouse
    """The settings that reach it; its secret stands in a file of the directory."""
    clickhouse_tcp_port: int
    """Of the native protocol, which clickhouse-client speaks."""
    broker_pids: tuple[int | None, ...]
    clickhouse_pid: int | None

    @property
    def complete(self) -> bool:
        """Whether every server runs."""
        return None not in (*self.broker_pids, self.clickhouse_pid)

    @property
    def config_hint(self) -> str:
        """The lines of a configuration file that reach this stack."""
        return (
            f'[kafka]\nbootstrap = "{self.bootstrap}"\n\n'
            f"[clickhouse]\n{clickhouse.toml(self.clickhouse)}"
        )


def up(
    directory: Path,
    *,
    brokers: int | None = None,
    kafka_port: int = 0,
    clickhouse_port: int = 0,
    clickhouse_tcp_port: int = 0,
    progress: Callable[[str], None],
) -> Stack:
    """Start what does not run yet, and wait until all of it answers.

    Data, logs and pids are kept in `directory`, which is made if missing. The number of brokers and
    the ports are as in relay.dev.layout.decide; `progress` gets short lines about what is done.

    Raises:
        MissingTool: no Java, no ClickHouse, or jars that cannot be fetched.
        ConfigError: the directory holds another kind of stack.
        Unavailable: a server ended at start or does not answer; with its log's tail.
    """
    directory = directory.resolve()
    java.require()
    clickhouse.require()
    jars.classpath(progress)
    directory.mkdir(parents=True, exist_ok=True)
    with _lock(directory):
        plan, changed = layout.decide(
            directory, brokers, kafka_port, clickhouse_port, clickhouse_tcp_port
        )
        if changed:
            _refuse_if_running(directory, plan)
            layout.write(directory, plan)
        _start(directory, plan, progress)
    return _find_servers(directory, plan)


def status(directory: Path) -> Stack | None:
    """Return the stack as it is now, or None if there never was one."""
    directory = directory.resolve()
    plan = layout.read(directory)
    return None if plan is None else _find_servers(directory, plan)


def down(directory: Path) -> list[str]:
    """End the servers that run, and wait until they are gone; return their names and pids."""
    directory = directory.resolve()
    if layout.read(directory) is None:
        return []
    with _lock(directory):
        plan = layout.read(directory)
        names = [] if plan is None else _names(plan)
        # A signal to all first: in a quorum, the last one standing waits in vain for the others.
        running = {name: server for name in names if (server := process.find(directory, name))}
        for server in running.values():
            process.ask_to_end(server)
        for name in names:
            process.end(directory, name)
    return [f"{name} (pid {server.pid})" for name, server in running.items()]


def _names(plan: Layout) -> list[str]:
    return [*(broker.name(index) for index in range(len(plan.kafka_ports))), CLICKHOUSE]


def _start(directory: Path, plan: Layout, progress: Callable[[str], None]) -> None:
    launched = []
    try:
        for index in range(len(plan.kafka_ports)):
            if process.find(directory, broker.name(index)) is None:
                progress(f"starting {broker.name(index)} on port {plan.kafka_ports[index]}")
                broker.launch(directory, index, plan)
                launched.append(broker.name(index))
        if process.find(directory, CLICKHOUSE) is None:
            progress(f"starting {CLICKHOUSE} on port {plan.clickhouse_port}")
            clickhouse.launch(directory, plan)
            launched.append(CLICKHOUSE)
        for index in range(len(plan.kafka_ports)):
            broker.await_ready(directory, index, plan)
        clickhouse.await_ready(directory, plan)
    except BaseException:  # also Ctrl-C: a start that failed leaves nothing of its own behind
        for name in launched:
            process.end(directory, name, kill=True)
        raise


def _find_servers(directory: Path, plan: Layout) -> Stack:
    servers = [process.find(directory, name) for name in _names(plan)]
    *broker_pids, clickhouse_pid = [None if server is None else server.pid for server in servers]
    return Stack(
        directory=directory,
        bootstrap=plan.bootstrap,
        clickhouse=clickhouse.reach(directory, plan),
        clickhouse_tcp_port=plan.clickhouse_tcp_port,
        broker_pids=tuple(broker_pids),
        clickhouse_pid=clickhouse_pid,
    )


def _refuse_if_running(directory: Path, plan: Layout) -> None:
    running = [name for name in _names(plan) if process.find(directory, name)]
    if running:
        raise ConfigError(
            f"{', '.join(running)} of {directory} run on other ports than asked for",
            "run `relay dev down` first, or leave the ports out",
        )


@contextmanager
def _lock(directory: Path) -> Iterator[None]:
    """Hold the directory: two `up` at once start one stack."""
    with (directory / "lock").open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
