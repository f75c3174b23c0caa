"""The one HTTP server of all programs: metrics, health and pages, read only.

Receives where to listen and what answers each path; gives the address that is really bound.
Serves in threads of its own, so that a reader who hangs holds up neither the program nor the
other readers. Speaks plain HTTP: who may reach it is for the network to decide.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import Any
from urllib.parse import parse_qsl
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIEnvironment

from relay.errors import ConfigError

Answer = tuple[int, str, bytes]
"""HTTP status, content type, body."""

Route = Callable[[Mapping[str, str]], Answer]
"""Answers one path; receives the query's parameters, the last of a name that stands twice."""

TEXT = "text/plain; charset=utf-8"

_SILENT_SECONDS = 10.0
"""A connection that sends nothing for so long is closed: its thread would stay for ever."""

log = logging.getLogger(__name__)


class Serving(AbstractContextManager["Serving"]):
    """Serve from construction until `close()`.

    Args:
        listen: `HOST:PORT`; port 0 takes a free one; an empty host is every address.
            An IPv6 address stands in brackets.
        routes: by path, `/metrics`; a slash at the end of what is asked makes no difference.
            May be called by several threads at once.
        headers: sent with every answer, beside the server's own.

    Attributes:
        address: `host:port` as really bound.

    Raises:
        ConfigError: `listen` is not of that form, or cannot be bound.
    """

    def __init__(
        self,
        listen: str,
        routes: Mapping[str, Route],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        host, port = parsed(listen)
        try:
            kind = _HttpServer6 if ":" in host else _HttpServer
            self._server = kind((host, port), _Handler)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {listen}: {error.strerror or error}",
                "choose a free port and an address of this machine",
            ) from error
        self._routes, self._headers = routes, headers or {}
        self._server.set_app(self._respond)
        shown = f"[{host}]" if ":" in host else host
        self.address = f"{shown}:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="http", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop the server and free the port; this may cut off answers under way."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _respond(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """Answer one request, as WSGI has it."""
        status, kind, body = self._answer(environ)
        headers = [
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            *self._headers.items(),
        ]
        start(f"{status} {HTTPStatus(status).phrase}", headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    def _answer(self, environ: WSGIEnvironment) -> Answer:
        if environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
            return 405, TEXT, b"only GET and HEAD\n"
        path = str(environ.get("PATH_INFO", "")).rstrip("/") or "/"
        route = self._routes.get(path)
        if route is None:
            return 404, TEXT, ("there is " + ", ".join(sorted(self._routes)) + "\n").encode()
        query = dict(parse_qsl(str(environ.get("QUERY_STRING", "")), keep_blank_values=True))
        try:
            return route(query)
        except Exception:  # a fault of the page must not end the program that it tells about
            log.exception("the HTTP server failed to answer a request", extra={"path": path})
            return 500, TEXT, b"see the log\n"


def parsed(listen: str) -> tuple[str, int]:
    """Parse `HOST:PORT`.

    Raises:
        ConfigError: it is not of that form.
    """
    host, colon, port = listen.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    valid = colon and port.isascii() and port.isdigit() and int(port) < 1 << 16
    if not valid or (":" in host and not bracketed):
        raise ConfigError(
            f"{listen!r} is not an address to listen on", "write HOST:PORT, as in 127.0.0.1:9464"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def behind(listen: str | None, index: int) -> str | None:
    """Return the address `index` ports behind; the same where the port is 0, which is any free one.

    Raises:
        ConfigError: `listen` is not of that form.
    """
    if listen is None:
        return None
    _, port = parsed(listen)
    return f"{listen.rpartition(':')[0]}:{port + index if port else 0}"


class _HttpServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False  # a reader who hangs must not hold up the program's end
    request_queue_size = 64

    def server_bind(self) -> None:
        """Bind without a lookup of the host's name, which hangs where no name server answers."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a reader that went away."""
        del request
        log.debug(
            "an HTTP client closed its connection early", extra={"client": str(client_address)}
        )


class _HttpServer6(_HttpServer):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = _SILENT_SECONDS

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Log nothing: a probe comes every second."""
        del format, args
