"""ClickHouse's engine (chdb) behind the part of its HTTP interface that clients here use.

    python -m relay.dev.endpoint --path DIR --port N

Receives: /ping; queries in URL or body, settings, `param_x` and `database` in the
URL or as multipart fields, data in the body (`Content-Encoding` as a server).
Gives: the result, or status and `X-ClickHouse-Exception-Code` as a server does.
Never: users, sessions over several requests, external tables, answers
compressed or streamed. For development and tests only.
"""

from __future__ import annotations

import json
import logging
import re
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import chdb.session
import click

from relay.dev import httpquery
from relay.dev.httpquery import Query

_CLOSE_SECONDS = 20.0
_CODE = re.compile(r"Code: (\d+)")
# The codes that a server does not answer with 500: its exceptionCodeToHTTPStatus, in part.
_BAD_REQUEST = {6, 25, 26, 27, 32, 33, 38, 41, 42, 43, 53, 62, 69, 70, 72, 117, 130, 131, 456, 457}
_NOT_FOUND = {16, 36, 46, 47, 50, 56, 60, 81, 115}
_STATUS = {**dict.fromkeys(_BAD_REQUEST, 400), **dict.fromkeys(_NOT_FOUND, 404), 48: 501}

_SERVER = """<clickhouse>
    <!-- Machines for development have few cores: INSERTs and queries go before merges, which
         otherwise take half of them whenever tables of the same size are merged together. -->
    <os_threads_nice_value_merge_mutate>10</os_threads_nice_value_merge_mutate>
</clickhouse>
"""
"""The server's configuration, where it is not the default."""

Session: Any = chdb.session.Session  # has no types
_log = logging.getLogger("relay.dev.endpoint")


class Engine:
    """The one engine of this process; a session of its own for each query.

    Sessions run side by side (one shared session runs its queries one after the
    other), cost 0.3 ms, and keep settings and database of a query to itself.
    """

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._path = str(path)
        config = path.parent / f"{path.name}.xml"
        config.write_text(_SERVER)
        # Locks the path; the engine lives as long as a session.
        self._root = Session(f"{path}?config-file={config}")
        self._spool = path.parent / f"{path.name}-spool"
        self._spool.mkdir(exist_ok=True)
        for leftover in self._spool.iterdir():  # of a crash
            leftover.unlink()
        self._busy = 0
        self._closed = False
        self._changed = threading.Condition()
        self.version = str(self._root.query("SELECT version()", "TSVRaw")).strip()
        self.timezone = str(self._root.query("SELECT timezone()", "TSVRaw")).strip()

    def run(self, query: Query) -> tuple[bytes, dict[str, str]]:
        """Result and summary of one query.

        Raises:
            RuntimeError: what the engine says.
            ConnectionAbortedError: the engine is closing.
        """
        with self._changed:
            if self._closed:
                raise ConnectionAbortedError
            self._busy += 1
        try:
            with Session(self._path) as session:
                return self._run(session, query)
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    def _run(self, session: Any, query: Query) -> tuple[bytes, dict[str, str]]:
        if query.database:
            session.query(f"USE {httpquery.identifier(query.database)}")
        if query.settings:
            session.query(f"SET {httpquery.assignments(query.settings)}")
        started = time.perf_counter_ns()
        if query.data_format and not query.spools:
            with session.send_insert(query.sql, query.data_format) as insert:
                insert.append(query.data)
                inserted = insert.finish()
            counts = {
                "written_rows": inserted.rows_written,
                "written_bytes": inserted.bytes_written,
            }
            result = b""
        else:
            answer = self._over_spool(session, query) if query.spools else _ask(session, query)
            counts = {
                "read_rows": answer.rows_read(),
                "read_bytes": answer.bytes_read(),
                "written_rows": answer.rows_written(),
                "written_bytes": answer.bytes_written(),
                "result_bytes": answer.size(),
            }
            result = bytes(answer.bytes() or b"")
        counts["elapsed_ns"] = time.perf_counter_ns() - started
        return result, {key: str(value) for key, value in counts.items()}

    def _over_spool(self, session: Any, query: Query) -> Any:
        spool = self._spool / f"{threading.get_ident()}-{time.perf_counter_ns()}"
        try:
            spool.write_bytes(query.data)
            return session.query(query.over_file(spool), "TabSeparated", params=query.parameters)
        finally:
            spool.unlink(missing_ok=True)

    def close(self) -> None:
        """Let running queries end, refuse new ones, and close the data in good order."""
        with self._changed:
            self._closed = True
            if not self._changed.wait_for(lambda: self._busy == 0, _CLOSE_SECONDS):
                _log.warning("%d queries still run after %g s", self._busy, _CLOSE_SECONDS)
        self._root.close()


def _ask(session: Any, query: Query) -> Any:
    return session.query(query.sql, query.default_format, params=query.parameters)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else headers and body wait 40 ms for each other
    wbufsize = -1
    engine: Engine

    def do_GET(self) -> None:
        """Also with a body: clickhouse-connect sends commands so."""
        url = urlsplit(self.path)
        body = self._body()
        headers = {key.lower(): value for key, value in self.headers.items()}
        arguments = dict(parse_qsl(url.query, keep_blank_values=True))
        if url.path == "/ping" or not (body or arguments.get("query")):
            self._answer(200, b"Ok.\n", {})
            return
        try:
            query = httpquery.parse(arguments, body, headers)
            result, summary = self.engine.run(query)
        except (RuntimeError, ValueError) as error:  # RuntimeError: whatever the engine says
            self._refuse(str(error))
        except ConnectionAbortedError:
            self.close_connection = True
            self._refuse("Code: 236. DB::Exception: The endpoint is ending. (ABORTED)", 503)
        else:
            about = {
                "X-ClickHouse-Summary": json.dumps(summary),
                "X-ClickHouse-Query-Id": arguments.get("query_id", ""),
                "X-ClickHouse-Timezone": self.engine.timezone,
            }
            if not query.inserts:  # clients take an answer with a format for a result
                about["X-ClickHouse-Format"] = query.result_format
            self._answer(200, result, about)

    do_POST = do_GET  # noqa: N815 - http.server's names

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailers mean nothing here
        return b"".join(chunks)

    def _refuse(self, message: str, status: int = 0) -> None:
        found = _CODE.search(message)
        code = int(found[1]) if found else 1001  # STD_EXCEPTION
        told = message[found.start() :] if found else message  # chdb sets words of its own before
        body = f"{told} (version {self.engine.version})\n".encode()
        headers = {"X-ClickHouse-Exception-Code": str(code)}
        self._answer(status or _STATUS.get(code, 500), body, headers)

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Only what is not a success: the log is for finding faults."""
        if len(args) < 2 or str(args[1]) != "200":
            _log.info(format, *args)


class _Server(ThreadingHTTPServer):
    daemon_threads = True  # an idle kept connection must not hold up the end
    request_queue_size = 128


@click.command()
@click.option("--path", type=click.Path(path_type=Path), required=True, help="of the data")
@click.option("--port", type=int, required=True, help="on 127.0.0.1")
def main(path: Path, port: int) -> None:
    """Serve until SIGTERM or SIGINT."""
    logging.basicConfig(level=logging.INFO, format="[%(asctime)s] %(levelname)s %(message)s")
    engine = Engine(path.resolve())
    handler = type("BoundHandler", (Handler,), {"engine": engine})
    server = _Server(("127.0.0.1", port), handler)

    def end(_number: int, _frame: FrameType | None) -> None:
        # shutdown() waits for serve_forever(), which this very thread runs.
        threading.Thread(target=server.shutdown).start()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    _log.info("ClickHouse %s serves %s on port %d", engine.version, path, port)
    server.serve_forever(poll_interval=0.1)
    engine.close()
    server.server_close()
    _log.info("ended")


if __name__ == "__main__":
    main()
