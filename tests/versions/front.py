"""HTTP before an engine that has no listener of its own: versions older than 26.7.

    python -m tests.versions.front DIRECTORY PORT

runs in the environment of that version. Receives what clients send here: queries in URL or body,
settings, parameters, data. Each user is a role of the engine's one user (tests.versions.users), so
rights are the engine's own. `input('…')` reads a file there; whether the user may call input() is
asked of the engine first, with no data. Answers only those who know a password, by POST, under
this machine's name, and no page of a browser.
"""

from __future__ import annotations

import base64
import inspect
import json
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from chdb import session as chdb_session

from tests.versions import httpquery
from tests.versions.httpquery import Query
from tests.versions.users import SPOOL

_CODE = re.compile(r"Code: (\d+)")
# The codes that a server does not answer with 500: its exceptionCodeToHTTPStatus, in part.
_BAD_REQUEST = {6, 25, 26, 27, 32, 33, 38, 41, 42, 43, 53, 62, 69, 70, 72, 117, 130, 131, 456, 457}
_NOT_FOUND = {16, 36, 46, 47, 50, 56, 60, 81, 115}
_STATUS = {**dict.fromkeys(_BAD_REQUEST, 400), **dict.fromkeys(_NOT_FOUND, 404)}
_STATUS |= {48: 501, 497: 403, 516: 403}
_HOSTS = ("127.0.0.1", "localhost")

Session: Any = chdb_session.Session  # has no types
SIDE_BY_SIDE = "params" in inspect.signature(Session.query).parameters
"""Whether several sessions may be open at once; before chdb 4 one connection was all."""


class Engine:
    """The one engine of this process; a session of its own for each query where it has them."""

    def __init__(self, directory: Path) -> None:
        self._path = str(directory / "data")
        self._spool = directory / "spool"
        self._spool.mkdir(exist_ok=True)
        self._users = json.loads((directory / "users.json").read_text())
        self._root = Session(f"{self._path}?config-file={directory / 'config.xml'}")
        self._alone = threading.Lock()
        self._writing = threading.Lock()
        version, zone = self._lines(self._root, "SELECT version(), timezone()")[0].split("\t")
        self.version, self.timezone = version, zone

    def knows(self, user: str, password: str) -> bool:
        return user in self._users and self._users[user]["password"] == password

    def run(self, user: str, query: Query) -> tuple[bytes, dict[str, str]]:
        """Result and summary of one query.

        Raises:
            RuntimeError: what the engine says.
        """
        started = time.perf_counter_ns()
        with self._session() as session:
            self._tell(session, f"SET ROLE {user}")
            if query.database:
                self._tell(session, f"USE {httpquery.identifier(query.database)}")
            settings = self._users[user]["settings"] | query.settings
            try:
                if settings:
                    self._tell(session, f"SET {httpquery.assignments(settings)}")
                for name, value in query.parameters.items():
                    self._tell(session, f"SET param_{name} = {httpquery.quote(value)}")
                result, written = self._answer(session, user, query)
            finally:
                self._as_before(session, settings)
        counts = {"written_rows": written, "elapsed_ns": time.perf_counter_ns() - started}
        return result, {name: str(value) for name, value in counts.items()}

    def _answer(self, session: Any, user: str, query: Query) -> tuple[bytes, int]:
        if not query.inserts:
            return self._bytes(session, query.sql, query.default_format), 0
        with self._writing:  # what is counted is of this INSERT, then
            before = self._inserted()
            if query.data_format:
                self._insert(session, user, query)
            else:
                self._tell(session, query.sql)
            return b"", self._inserted() - before

    def _insert(self, session: Any, user: str, query: Query) -> None:
        spool = self._spool / f"{threading.get_ident()}-{time.perf_counter_ns()}"
        try:
            spool.write_bytes(query.data)
            if query.spools:
                self._may_call_input(session, query)
            self._tell(session, f"SET ROLE {user}, {SPOOL}")
            self._tell(session, query.over_file(spool))
        finally:
            spool.unlink(missing_ok=True)

    def _may_call_input(self, session: Any, query: Query) -> None:
        """Have the statement itself judged, in which the engine finds no data and so stops."""
        try:
            self._tell(session, f"{query.sql} FORMAT JSONEachRow\n{{}}")
        except RuntimeError as error:
            if "Code: 108." not in str(error):  # NO_DATA_TO_INSERT
                raise

    def _inserted(self) -> int:
        sql = "SELECT toString(sum(value)) FROM system.events WHERE event = 'InsertedRows'"
        with self._session(counting=True) as session:
            return int(self._lines(session, sql)[0])

    @contextmanager
    def _session(self, *, counting: bool = False) -> Iterator[Any]:
        if SIDE_BY_SIDE:
            with Session(self._path) as session:
                yield session
        elif counting:  # within the session of the query
            yield self._root
        else:
            with self._alone:
                yield self._root

    def _as_before(self, session: Any, settings: dict[str, str]) -> None:
        if SIDE_BY_SIDE:
            return
        self._tell(session, "SET ROLE admin")
        self._tell(session, "USE default")
        for name in settings:
            try:
                self._tell(session, f"SET {httpquery.identifier(name)} = DEFAULT")
            except RuntimeError as error:
                if "Code: 115." not in str(error):  # it did not know the setting before, either
                    raise

    def _tell(self, session: Any, sql: str) -> None:
        self._bytes(session, sql, "TabSeparated")

    def _lines(self, session: Any, sql: str) -> list[str]:
        return self._bytes(session, sql, "TSVRaw").decode().splitlines()

    @staticmethod
    def _bytes(session: Any, sql: str, form: str) -> bytes:
        return bytes(session.query(sql, form).bytes() or b"")

    def close(self) -> None:
        self._root.close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else headers and body wait 40 ms for each other
    wbufsize = -1
    engine: Engine

    def do_GET(self) -> None:
        if urlsplit(self.path).path == "/ping" and self._is_meant():
            self._answer(200, b"Ok.\n", {})
        else:
            self._refuse("Code: 164. DB::Exception: only by POST. (READONLY)", 403)

    def do_POST(self) -> None:
        body = self._body()
        if not self._is_meant():
            self._refuse("Code: 516. DB::Exception: foreign Host or Origin.", 403)
            return
        arguments = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        headers = {key.lower(): value for key, value in self.headers.items()}
        user, password = _credentials(arguments, headers)
        if not self.engine.knows(user, password):
            text = f"Code: 516. DB::Exception: {user}: Authentication failed. "
            self._refuse(f"{text}(AUTHENTICATION_FAILED)")
            return
        try:
            query = httpquery.parse(arguments, body, headers)
            result, summary = self.engine.run(user, query)
        except (RuntimeError, ValueError) as error:  # RuntimeError: whatever the engine says
            self._refuse(str(error))
            return
        about = {
            "X-ClickHouse-Summary": json.dumps(summary),
            "X-ClickHouse-Query-Id": arguments.get("query_id", ""),
            "X-ClickHouse-Timezone": self.engine.timezone,
        }
        if not query.inserts:  # clients take an answer with a format for a result
            about["X-ClickHouse-Format"] = query.result_format
        self._answer(200, result, about)

    def _is_meant(self) -> bool:
        """Whether a program on this machine asks, and no page of a browser."""
        host = self.headers.get("Host", "").rpartition(":")[0]
        return host in _HOSTS and "Origin" not in self.headers

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
        """Nothing: what was wrong is in the answer."""


def _credentials(arguments: dict[str, str], headers: dict[str, str]) -> tuple[str, str]:
    kind, _, given = headers.get("authorization", "").partition(" ")
    if kind.lower() == "basic":
        user, _, password = base64.b64decode(given).decode().partition(":")
        return user, password
    return (
        headers.get("x-clickhouse-user") or arguments.get("user", ""),
        headers.get("x-clickhouse-key") or arguments.get("password", ""),
    )


class _Server(ThreadingHTTPServer):
    daemon_threads = True  # an idle kept connection must not hold up the end
    request_queue_size = 128


def main() -> None:
    directory, port = Path(sys.argv[1]), int(sys.argv[2])
    engine = Engine(directory)
    server = _Server(("127.0.0.1", port), type("Bound", (Handler,), {"engine": engine}))

    def end(*_: object) -> None:
        # shutdown() waits for serve_forever(), which this very thread runs.
        threading.Thread(target=server.shutdown).start()

    signal.signal(signal.SIGTERM, end)
    server.serve_forever(poll_interval=0.1)
    engine.close()
    server.server_close()


if __name__ == "__main__":
    main()
