"""ClickHouse's own server, which chdb's library holds, as a program.

    python -m relay.dev.server --directory DIR --http-port N --tcp-port M

Receives the directory of a stack with its password file. Gives HTTP and the native
protocol on 127.0.0.1 until SIGTERM or SIGINT; statements under way then have 20 s for
their answer. For development and tests only.

The library is ClickHouse's local mode, whose statement SYSTEM START LISTEN starts the
server's own handlers. They listen for as long as that session runs a statement, so its
last one sleeps until it is killed. `_chdb` is no public name: setup.cfg holds chdb-core to
versions that were tried.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import signal
import sys
import threading
import urllib.request
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import FrameType, ModuleType
from xml.sax.saxutils import escape

import click

from relay.dev.clickhouse import NAME, USER, password_file
from relay.dev.layout import HOST
from relay.dev.process import log_file

_CLOSE_SECONDS = 20
_KILL_SECONDS = 5.0
_KEEPALIVE = "relay dev: listens while this runs"
# HTTP listens last, for whoever waits asks there.
_STATEMENTS = f"""
SYSTEM START LISTEN TCP;
SYSTEM START LISTEN HTTP;
SELECT sum(sleepEachRow(0.2)) FROM numbers(4000000000) SETTINGS max_block_size = 1,
    function_sleep_max_microseconds_per_block = 0, log_comment = '{_KEEPALIVE}' FORMAT Null
"""  # noqa: S608 - a constant

_CONFIG = """<clickhouse>
    <listen_host>{host}</listen_host>
    <http_port>{http_port}</http_port>
    <tcp_port>{tcp_port}</tcp_port>
    <users_config>{users}</users_config>
    <logger>
        <log>{log}</log>
        <errorlog>{errors}</errorlog>
        <size>20M</size>
        <count>2</count>
    </logger>
    <!-- Local mode has a name of its own for the level. -->
    <log-level>warning</log-level>
    <shutdown_wait_unfinished>{close_seconds}</shutdown_wait_unfinished>
    <!-- Machines for development have few cores: INSERTs and queries go before merges, which
         otherwise take half of them whenever tables of the same size are merged together. -->
    <os_threads_nice_value_merge_mutate>10</os_threads_nice_value_merge_mutate>
    <!-- Local mode has two threads for what is due at some time, and pauses what wants both. -->
    <background_schedule_pool_size>16</background_schedule_pool_size>
    <!-- Brokers, Spark and a browser live on the same machine. -->
    <max_server_memory_usage_to_ram_ratio>0.5</max_server_memory_usage_to_ram_ratio>
    <mark_cache_size>268435456</mark_cache_size>
    <primary_index_cache_size>268435456</primary_index_cache_size>
    <!-- What the loader may ask when it does not know what became of a statement. -->
{logs}</clickhouse>
"""
"""The server's configuration, where it is not the default."""

_LOG = """    <{name}>
        <database>system</database>
        <table>{name}</table>
        <flush_interval_milliseconds>500</flush_interval_milliseconds>
        <engine>ENGINE = MergeTree PARTITION BY event_date ORDER BY (event_date, event_time)
            TTL event_date + INTERVAL 3 DAY SETTINGS ttl_only_drop_parts = 1</engine>
    </{name}>
"""
_LOGS = ("query_log", "part_log")

_USERS = """<clickhouse>
    <profiles>
        <default/>
        <local><max_sessions_for_user>1</max_sessions_for_user></local>
    </profiles>
    <quotas><default/></quotas>
    <users>
        <!-- Local mode opens a session as `default` without a password, from 127.0.0.1, and that
             cannot be changed. So this name may have one session, which is that one for as long as
             the server runs (nobody else gets in), and may do nothing but listen. -->
        <default>
            <no_password/>
            <networks><ip>{host}</ip></networks>
            <profile>local</profile>
            <quota>default</quota>
            <grants><query>GRANT SYSTEM LISTEN ON *.*</query></grants>
        </default>
        <!-- All rights; READ ON FILE among them, which local mode wants for `input()`. -->
        <{user}>
            <password_sha256_hex>{digest}</password_sha256_hex>
            <networks><ip>{host}</ip></networks>
            <profile>default</profile>
            <quota>default</quota>
            <access_management>1</access_management>
            <named_collection_control>1</named_collection_control>
        </{user}>
    </users>
</clickhouse>
"""

_log = logging.getLogger("relay.dev.server")


def configure(directory: Path, http_port: int, tcp_port: int) -> Path:
    """Write config.xml and users.xml for a stack; return the directory that holds them."""
    place = directory / f"{NAME}-server"
    place.mkdir(parents=True, exist_ok=True)
    secret = password_file(directory).read_text(encoding="utf-8").strip()
    users = place / "users.xml"
    _write(users, _USERS.format(host=HOST, user=USER, digest=_sha256(secret)))
    config = _CONFIG.format(
        host=HOST,
        http_port=http_port,
        tcp_port=tcp_port,
        users=escape(str(users)),
        log=escape(str(log_file(directory, f"{NAME}-server"))),
        errors=escape(str(log_file(directory, f"{NAME}-errors"))),
        close_seconds=_CLOSE_SECONDS,
        logs="".join(_LOG.format(name=name) for name in _LOGS),
    )
    _write(place / "config.xml", config)
    return place


def _sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _write(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)  # the mode counts only where the file is made
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def _library() -> ModuleType:
    """chdb's library alone: `import chdb` would start an engine in the working directory."""
    package = importlib.util.find_spec("chdb")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("chdb-core is not installed", name="chdb")
    path = str(Path(package.origin).parent / "_chdb.abi3.so")
    loader = ExtensionFileLoader("_chdb", path)
    spec = importlib.util.spec_from_file_location("_chdb", path, loader=loader)
    assert spec is not None, "a loader was given"
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


class Server:
    """The one server of this process.

    Args:
        directory: of the stack.
        http_port: of HTTP, on loopback.
        tcp_port: of the native protocol, on loopback.
    """

    def __init__(self, directory: Path, http_port: int, tcp_port: int) -> None:
        self._directory, self._port = directory, http_port
        self._place = configure(directory, http_port, tcp_port)
        self._wake = threading.Event()
        self._asked = False
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def run(self) -> bool:
        """Serve until `end`; return whether it ended because it was asked to."""
        os.chdir(self._place)  # where local mode looks for config.xml
        self._thread.start()
        self._wake.wait()
        while self._asked and self._thread.is_alive():
            # Until the server has begun to listen there is nobody to tell.
            self._thread.join(_CLOSE_SECONDS + _KILL_SECONDS if self._kill_keepalive() else 0.2)
        return self._asked

    def end(self, _number: int, _frame: FrameType | None) -> None:
        """Ask `run` to end; a signal handler."""
        self._asked = True
        self._wake.set()

    def _serve(self) -> None:
        try:
            data = str(self._directory / NAME)
            answer = _library().query(_STATEMENTS, "TSV", path=data)
            if answer.has_error():
                _log.error("%s", answer.error_message())
        finally:
            self._wake.set()

    def _kill_keepalive(self) -> bool:
        sql = f"KILL QUERY WHERE Settings['log_comment'] = '{_KEEPALIVE}' ASYNC"
        headers = {
            "X-ClickHouse-User": USER,
            "X-ClickHouse-Key": password_file(self._directory).read_text(encoding="utf-8").strip(),
        }
        request = urllib.request.Request(f"http://{HOST}:{self._port}/", sql.encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=_KILL_SECONDS) as answer:  # noqa: S310 - our own http address
                return bool(answer.read())  # the statements that it found
        except OSError as error:
            _log.warning("cannot end in order yet: %s", error)
            return False


@click.command()
@click.option("--directory", type=click.Path(path_type=Path), required=True, help="of the stack")
@click.option("--http-port", type=int, required=True, help="on 127.0.0.1")
@click.option("--tcp-port", type=int, required=True, help="on 127.0.0.1")
def main(directory: Path, http_port: int, tcp_port: int) -> None:
    """Serve until SIGTERM or SIGINT."""
    logging.basicConfig(level=logging.INFO, format="[%(asctime)s] %(levelname)s %(message)s")
    server = Server(directory.resolve(), http_port, tcp_port)
    signal.signal(signal.SIGTERM, server.end)
    signal.signal(signal.SIGINT, server.end)
    _log.info(
        "ClickHouse's server of %s: HTTP on port %d, TCP on %d", directory, http_port, tcp_port
    )
    in_order = server.run()
    _log.info("ended" if in_order else "ended by itself")
    sys.stdout.flush()
    # Threads of the library outlive its end, and would be torn down under their feet.
    os._exit(0 if in_order else 1)


if __name__ == "__main__":
    main()
