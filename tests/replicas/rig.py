"""Three replicas or fewer, their coordinator, a proxy before each and a balancer before all."""

from __future__ import annotations

import contextlib
import secrets
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import clickhouse_connect

from relay.dev import process
from relay.dev.layout import free_ports
from tests.loader.blocks import await_next_second
from tests.replicas import coordinator, library
from tests.replicas.front import Front
from tests.replicas.line import Line
from tests.replicas.server import HOST, USER, Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psutil
    from clickhouse_connect.driver.client import Client

START_SECONDS = 90.0
"""For a replica on a crowded machine; two on an idle one."""
SESSION_MS = 5_000
ACTIVE_SECONDS = 60.0
_SOURCE = str(Path(__file__).resolve().parents[2])


@dataclass
class Replica:
    """One replica; its process is found by name, whoever started it.

    Attributes:
        directory: of its data, its log and `settings.json`.
        front: a proxy before it.
    """

    directory: Path
    settings: Settings
    front: Front

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def url(self) -> str:
        """Its own, without a proxy."""
        return f"http://{HOST}:{self.settings.http}"

    def start(self, *, wait: bool = True) -> None:
        """Start it; with `wait`, until it answers."""
        command = [sys.executable, "-m", "tests.replicas.server", str(self.directory)]
        process.spawn(self.directory, self.name, command, {"PYTHONPATH": _SOURCE})
        if wait:
            self.await_ready()

    def await_ready(self) -> None:
        """Wait until it answers.

        Raises:
            Unavailable: it does not.
        """
        process.await_ready(self.directory, self.name, self.answers, START_SECONDS)

    def answers(self) -> bool:
        """Whether it answers at its own port."""
        try:
            with socket.create_connection((HOST, self.settings.http), 1) as asking:
                asking.settimeout(5)
                asking.sendall(b"GET /ping HTTP/1.0\r\n\r\n")
                return b" 200 " in asking.recv(64)
        except OSError:
            return False

    def runs(self) -> psutil.Process | None:
        """Its process."""
        return process.find(self.directory, self.name)

    def kill(self) -> bool:
        """SIGKILL; whether it ran."""
        return process.end(self.directory, self.name, kill=True)

    def stop(self) -> bool:
        """SIGTERM, and its end; whether it ran."""
        return process.end(self.directory, self.name)

    def restart(self, settings: Settings) -> None:
        """Stop it, and start it as these settings say."""
        self.stop()
        self.settings = settings
        settings.write(self.directory)
        self.start()

    def pause(self) -> None:
        """SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if (found := self.runs()) is not None:
            found.send_signal(number)

    def client(self, **options: Any) -> Client:
        """A client of just this one, without the proxy."""
        options.setdefault("query_retries", 0)
        return clickhouse_connect.get_client(
            host=HOST,
            port=self.settings.http,
            username=USER,
            password=self.settings.password,
            autogenerate_session_id=False,
            **options,
        )

    def command(self, sql: str, *, seconds: float = 300, **settings: Any) -> Any:
        """One statement's answer, over a connection of its own, within so many seconds."""
        client = self.client(settings=settings, send_receive_timeout=seconds)
        try:
            return client.command(sql)
        finally:
            client.close()

    def rows(self, sql: str, **settings: Any) -> Sequence[Sequence[Any]]:
        """One question's rows, over a connection of its own."""
        client = self.client(settings=settings)
        try:
            return client.query(sql).result_rows
        finally:
            client.close()


@dataclass
class Rig:
    """All of it, in a directory; a context manager, which ends whatever it started.

    Attributes:
        directory: of all; absolute.
        session_ms: of the replicas with the coordinator.
        size: how many replicas.
        profile: XML of settings for all of their users.
        line: to the coordinator, where it is not a plain one.
    """

    directory: Path
    session_ms: int = SESSION_MS
    password: str = field(default_factory=lambda: secrets.token_hex(8))
    replicas: list[Replica] = field(default_factory=list)
    balancer: Front | None = None
    port: int = 0
    size: int = 3
    profile: str = ""
    line: Line | None = None

    def __enter__(self) -> Self:
        library.check()
        ports = free_ports(7)
        self.port = ports[0]
        if self.line is not None:
            self.line.lead_to(self.port)
        for number in range(1, self.size + 1):
            self.replicas.append(self._replica(number, ports[2 * number - 1], ports[2 * number]))
        addresses = [(HOST, one.settings.http) for one in self.replicas]
        self.balancer = Front(addresses)
        try:
            coordinator.start(self.directory, self.port)
            for one in self.replicas:
                one.start(wait=False)
            for one in self.replicas:
                one.await_ready()
        except BaseException:
            self.close()
            raise
        return self

    def _replica(self, number: int, http: int, tcp: int) -> Replica:
        directory = self.directory / f"r{number}"
        directory.mkdir(parents=True)
        # An address of its own, by this test run's port: other rigs may run on the machine.
        interserver = f"127.{self.port >> 8}.{self.port & 255}.{10 + number}"
        session = self.session_ms
        port = self.line.port if self.line is not None else self.port
        users = self.password, self.profile
        made = Settings(f"r{number}", http, tcp, interserver, port, session, *users)
        made.write(directory)
        return Replica(directory, made, Front([(HOST, http)]))

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything."""
        for front in (*(one.front for one in self.replicas), self.balancer):
            if front is not None:
                front.close()
        for one in self.replicas:
            one.kill()
        coordinator.end(self.directory)
        if self.line is not None:
            self.line.close()

    def lose_coordinator(self) -> None:
        """SIGKILL for ZooKeeper."""
        coordinator.end(self.directory)

    def coordinated(self) -> bool:
        """Whether ZooKeeper runs."""
        return process.find(self.directory, coordinator.NAME) is not None

    def return_coordinator(self) -> None:
        """Start it again, with all that it knew."""
        coordinator.start(self.directory, self.port)

    def heal(self) -> None:
        """Everything runs again, and nothing is held up."""
        for one in self.replicas:
            one.resume()
            one.front.refuse(False)
        if not self.coordinated():
            self.return_coordinator()
        for one in self.replicas:
            if one.runs() is None:
                one.start(wait=False)
        for one in self.replicas:
            one.await_ready()

    def make(self, table: str, columns: str, rest: str) -> None:
        """A replicated table on each replica."""
        database = table.partition(".")[0]
        engine = f"ReplicatedMergeTree('/{table}', '{{replica}}')"
        self.run(
            f"CREATE DATABASE IF NOT EXISTS {database}",
            f"CREATE TABLE {table} ({columns}) ENGINE = {engine} {rest}",
        )

    def run(self, *statements: str) -> None:
        """Run what makes a table on each replica, and wait until all of them are active.

        And until the second in which it was made is over: what is claimed in that second may have
        been claimed before.
        """
        for statement in statements:
            self.everywhere(statement)
        self.await_active()
        with contextlib.closing(self.replicas[0].client()) as client:
            await_next_second(client)

    def await_active(self, seconds: float = ACTIVE_SECONDS) -> None:
        """Wait until every replicated table is active on each replica.

        Raises:
            TimeoutError: they are not.
        """
        asked = (
            "SELECT database || '.' || table, is_readonly, is_session_expired, replica_is_active, "
            "zookeeper_exception FROM system.replicas WHERE is_readonly OR is_session_expired "
            f"OR active_replicas < {len(self.replicas)} ORDER BY 1 LIMIT 3"
        )
        deadline = time.monotonic() + seconds
        while waiting := {one.name: rows for one in self.replicas if (rows := one.rows(asked))}:
            if time.monotonic() > deadline:
                raise TimeoutError(f"not active after {seconds:g} s: {waiting}")
            time.sleep(0.05)  # the condition is above

    def everywhere(self, sql: str) -> None:
        """One statement on each replica."""
        for one in self.replicas:
            one.command(sql)

    def urls(self, *, proxied: bool = True) -> str:
        """clickhouse.url that names each replica."""
        return ",".join(one.front.url if proxied else one.url for one in self.replicas)
