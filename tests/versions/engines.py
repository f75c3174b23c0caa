"""A server of one release with given users, on this machine, for tests to ask and to kill."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import clickhouse_connect
from clickhouse_connect.driver.exceptions import ClickHouseError

from relay.config.settings import ClickHouse
from relay.dev.layout import free_ports
from tests.versions import users as user_files
from tests.versions.releases import Release, python_of
from tests.versions.users import User

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

ROOT = Path(__file__).resolve().parents[2]
ADMIN = User("admin", "of-tests")
_SECONDS = 180.0

_LOG = (
    "<{0}><database>system</database><table>{0}</table>"
    "<flush_interval_milliseconds>200</flush_interval_milliseconds></{0}>"
)
_CONFIG = """<clickhouse>
<listen_host>127.0.0.1</listen_host><http_port>{http}</http_port><tcp_port>{tcp}</tcp_port>
<logger><log>server.log</log><errorlog>err.log</errorlog><level>information</level></logger>
<users_config>{directory}/users.xml</users_config>
<os_threads_nice_value_merge_mutate>10</os_threads_nice_value_merge_mutate>
{more}
</clickhouse>
"""


class Engine:
    """One server.

    Args:
        release: of it.
        directory: its own; what is there already is gone on with.
        users: beside the administrator.
        port: to answer at; 0: a free one.
        more: of config.xml.
    """

    def __init__(
        self,
        release: Release,
        directory: Path,
        users: Sequence[User] = (),
        port: int = 0,
        more: str = "",
    ) -> None:
        self.release, self.directory = release, directory.resolve()
        self._users = [ADMIN, *users]
        chosen, self._tcp = free_ports(2)
        self.port = port or chosen
        self._more = more
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def reached_as(self, user: User, **more: Any) -> ClickHouse:
        """Settings of the product that reach it."""
        held = {"password_file": self.directory / f"password-{user.name}"}
        given = {"url": self.url, "user": user.name, **held, **more}
        return ClickHouse.model_validate(given)

    def client(self, user: User = ADMIN, **options: Any) -> Client:
        return clickhouse_connect.get_client(
            host="127.0.0.1",
            port=self.port,
            username=user.name,
            password=user.password,
            autogenerate_session_id=False,
            **options,
        )

    @contextlib.contextmanager
    def having(self, *databases: str) -> Iterator[Client]:
        """The administrator's client, while these databases are there."""
        with contextlib.closing(self.client()) as client:
            for database in databases:
                client.command(f"CREATE DATABASE {database}")
            yield client
            for database in databases:
                client.command(f"DROP DATABASE {database} SYNC")

    def start(self) -> None:
        """Until it answers."""
        self.directory.mkdir(parents=True, exist_ok=True)
        logs = "".join(map(_LOG.format, ("query_log", "part_log"))) if self.release.listens else ""
        config = _CONFIG.format(
            http=self.port, tcp=self._tcp, directory=self.directory, more=logs + self._more
        )
        (self.directory / "config.xml").write_text(config)
        listens = self.release.listens
        (self.directory / "users.xml").write_text(
            user_files.of_server(self._users) if listens else user_files.of_engine(self._users)
        )
        for user in self._users:
            (self.directory / f"password-{user.name}").write_text(user.password)
        known = {user.name: asdict(user) for user in self._users}
        (self.directory / "users.json").write_text(json.dumps(known))
        program = (
            [str(ROOT / "tests" / "versions" / "listener.py"), str(self.directory)]
            if listens
            else ["-m", "tests.versions.front", str(self.directory), str(self.port)]
        )
        with (self.directory / "output").open("ab") as output:
            self._process = subprocess.Popen(
                [str(python_of(self.release)), *program],
                cwd=self.directory,
                env={**os.environ, "PYTHONPATH": "" if listens else str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._await()

    def kill(self) -> None:
        """By SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """In good order where it can be told so."""
        if self._process is None:
            return
        if self.release.listens:
            with contextlib.suppress(ClickHouseError), contextlib.closing(self.client()) as client:
                client.command("KILL QUERY WHERE Settings['log_comment'] = 'keepalive' ASYNC")
        else:
            self._process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        self.kill()

    def _await(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _SECONDS
        while True:
            try:
                with contextlib.closing(self.client(connect_timeout=2, send_receive_timeout=5)):
                    return
            except ClickHouseError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    said = (self.directory / "output").read_text(errors="replace")[-3000:]
                    self.kill()
                    raise RuntimeError(f"{self.release}: {error}\n{said}") from error
            time.sleep(0.05)  # nothing tells when it answers but asking again


@contextlib.contextmanager
def running(
    release: Release, directory: Path, users: Sequence[User] = (), **more: Any
) -> Iterator[Engine]:
    """A server, killed afterwards: in good order it would wait for its clients."""
    engine = Engine(release, directory, users, **more)
    engine.start()
    try:
        yield engine
    finally:
        engine.kill()
