"""An HTTP front before ClickHouse that answers chosen statements with an error of its own."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, unquote_plus, urlsplit


class Error(NamedTuple):
    """What it answers."""

    code: int
    text: str = "no."
    status: int = 500


class Front(ThreadingHTTPServer):
    """Sends everything on, but what `refuses` has an error for.

    Attributes:
        refuses: asked with each statement's text, its parameters and the beginning of its body.
        refused: how many were.
        forgotten: settings that the server does not know any more, as after a roll-back.
        asked_for_settings: how often clients asked for all that the server knows.
    """

    daemon_threads = True

    def __init__(self, url: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        there = urlsplit(url)
        self.there = (there.hostname or "", there.port or 0)
        self.refuses: Callable[[str], Error | None] = lambda _: None
        self.refused = 0
        self.forgotten: frozenset[str] = frozenset()
        self.asked_for_settings = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def insert_into(self, table: str, error: Error, times: int = 1 << 30) -> None:
        """Answer so many INSERTs into the table with the error, and then none."""
        database, name = table.split(".")
        left = iter(range(times))

        def refuses(statement: str) -> Error | None:
            mine = f"INSERT INTO `{database}`.`{name}`" in statement
            return error if mine and next(left, None) is not None else None

        self.refuses = refuses

    def unknown(self, path: str) -> Error | None:
        """The answer of a server to a request with a setting that it does not know."""
        given = parse_qs(urlsplit(path).query, keep_blank_values=True).keys()
        for one in sorted(given & self.forgotten):
            return Error(115, f"Unknown setting '{one}'. (UNKNOWN_SETTING)", 404)
        return None

    def without_forgotten(self, body: bytes) -> bytes:
        """A question for all settings, as one for those that are left."""
        left = ", ".join(f"'{one}'" for one in sorted(self.forgotten)) or "''"
        here = b"readonly FROM system.settings LIMIT"
        self.asked_for_settings += here in body
        there = f"readonly FROM system.settings WHERE name NOT IN ({left}) LIMIT"
        return body.replace(here, there.encode())


class Handler(BaseHTTPRequestHandler):
    server: Front
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        statement = unquote_plus(self.path) + body[:100_000].decode("utf-8", "replace")
        body = self.server.without_forgotten(body)
        error = self.server.unknown(self.path) or self.server.refuses(statement)
        if error is None:
            self._send_on(body)
            return
        self.server.refused += 1
        text = f"Code: {error.code}. DB::Exception: {error.text}".encode() if error.code else b""
        self.send_response(error.status)
        if error.code:
            self.send_header("X-ClickHouse-Exception-Code", str(error.code))
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST  # noqa: N815 - http.server's name

    def _send_on(self, body: bytes) -> None:
        there = http.client.HTTPConnection(*self.server.there, timeout=60)
        with contextlib.closing(there):
            own = {"host", "content-length"}
            headers = {k: v for k, v in self.headers.items() if k.lower() not in own}
            there.request(self.command, self.path, body, headers)
            answer = there.getresponse()
            content = answer.read()
            self.send_response(answer.status)
            for key, value in answer.getheaders():
                if key.lower() not in {"transfer-encoding", "connection", "content-length"}:
                    self.send_header(key, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it overrides
        """Say nothing."""


@contextlib.contextmanager
def front(url: str) -> Iterator[Front]:
    """One before the server, until left."""
    with Front(url) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield made
        finally:
            made.shutdown()
            thread.join()
