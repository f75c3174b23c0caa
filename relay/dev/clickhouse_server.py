"""ClickHouse's own server, which chdb's library holds, as a program.

    python -m relay.dev.clickhouse_server --directory DIR --http-port N --tcp-port M

Receives the directory of a stack with its password file. Gives HTTP and the native
protocol on 127.0.0.1 until SIGTERM or SIGINT. Statements under way then have 20 s for
their answer, and are killed; those that come meanwhile have the server's own 5 s. For
development and tests only.

The library is ClickHouse's local mode, whose statement SYSTEM START LISTEN starts the
server's own handlers. They listen for as long as that session runs a statement, so its
last one sleeps until it is killed. `_chdb` is no public name: setup.cfg holds chdb-core to
versions that were tried.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import sys
import threading
import urllib.request
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from time import monotonic
from types import FrameType, ModuleType

import click

from relay.dev.clickhouse import NAME, USER, password_file
from relay.dev.clickhouse_config import configure
from relay.dev.layout import HOST

_CLOSE_SECONDS = 20.0
_ASK_SECONDS = 5.0
_POLL_SECONDS = 0.1
_KEEPALIVE = "relay dev: listens while this runs"
_IS_KEEPALIVE = f"Settings['log_comment'] = '{_KEEPALIVE}'"
_RUNNING = (
    f"SELECT query_id FROM system.processes WHERE NOT {_IS_KEEPALIVE} "  # noqa: S608 - a constant
    "AND query_id != queryID()"
)
# The flush makes query_log and part_log, which are otherwise not there until the first entry. HTTP
# listens last, for whoever waits asks there.
_STATEMENTS = f"""
SYSTEM FLUSH LOGS;
SYSTEM START LISTEN TCP;
SYSTEM START LISTEN HTTP;
SELECT sum(sleepEachRow(0.2)) FROM numbers(4000000000) SETTINGS max_block_size = 1,
    function_sleep_max_microseconds_per_block = 0, log_comment = '{_KEEPALIVE}' FORMAT Null
"""  # noqa: S608 - a constant

_log = logging.getLogger("relay.dev.clickhouse_server")


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


class EmbeddedServer:
    """The one server of this process, for the stack of a directory, on loopback."""

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
        if self._asked:
            self._end_in_order()
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

    def _end_in_order(self) -> None:
        """Wait for the statements under way, then end the one that keeps the server up."""
        started = monotonic()
        under_way: set[str] | None = None
        while self._thread.is_alive():
            try:
                running = set(self._ask(_RUNNING).split())
                under_way = running if under_way is None else under_way & running
                late = monotonic() - started > _CLOSE_SECONDS
                if late or not under_way:
                    for query_id in under_way:
                        _log.warning("killing query %s after %g s", query_id, _CLOSE_SECONDS)
                        self._ask(f"KILL QUERY WHERE query_id = '{query_id}' ASYNC")
                    self._ask(f"KILL QUERY WHERE {_IS_KEEPALIVE} ASYNC")
                    self._thread.join()
                    return
            except OSError as error:  # until it has begun to listen there is nobody to tell
                _log.warning("cannot stop ClickHouse in order yet: %s", error)
            self._thread.join(_POLL_SECONDS)

    def _ask(self, sql: str) -> str:
        headers = {
            "X-ClickHouse-User": USER,
            "X-ClickHouse-Key": password_file(self._directory).read_text(encoding="utf-8").strip(),
            "Connection": "close",  # or the server would wait for this one
        }
        request = urllib.request.Request(f"http://{HOST}:{self._port}/", sql.encode(), headers)
        with urllib.request.urlopen(request, timeout=_ASK_SECONDS) as answer:  # noqa: S310 - our own http address
            return str(answer.read().decode())


@click.command()
@click.option("--directory", type=click.Path(path_type=Path), required=True, help="of the stack")
@click.option("--http-port", type=int, required=True, help="on 127.0.0.1")
@click.option("--tcp-port", type=int, required=True, help="on 127.0.0.1")
def main(directory: Path, http_port: int, tcp_port: int) -> None:
    """Serve until SIGTERM or SIGINT."""
    logging.basicConfig(level=logging.INFO, format="[%(asctime)s] %(levelname)s %(message)s")
    server = EmbeddedServer(directory.resolve(), http_port, tcp_port)
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
