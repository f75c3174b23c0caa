"""The proxy before an HTTP server: requests are told apart by their text."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.chaos.proxy import Proxy
from tests.chaos.proxy_echo import SECONDS, until
from tests.chaos.proxy_wire import HTTP

INSERT = "/?query=INSERT+INTO+%60d%60.%60t%60&chunked=1"
NEEDLE = "INSERT INTO `d`.`t`"


class Server(ThreadingHTTPServer):
    """Answers each request with its own body; remembers the bodies that came whole."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[bytes] = []
        self.broken = 0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        body = self._body()
        if body is None:
            self.server.broken += 1
            self.close_connection = True
            return
        self.server.bodies.append(body)
        self.send_response(200)
        if "chunked" in self.path:
            self.send_header("Transfer-Encoding", "chunked")
            pieces = [body[:10], body[10:], b""]
            body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
        else:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _body(self) -> bytes | None:
        """None: it ended too early."""
        if "Content-Length" in self.headers:
            size = int(self.headers["Content-Length"])
            body = self.rfile.read(size)
            return body if len(body) == size else None
        pieces = []
        while size := int(self.rfile.readline(), 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Nothing: requests are in `bodies`."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    made = Proxy.start(("127.0.0.1", server.server_port), wire=HTTP)
    yield made
    made.stop()


def post(client: HTTPConnection, target: str, body: bytes) -> bytes:
    client.request("POST", target, body)
    return client.getresponse().read()


def connect(proxy: Proxy) -> HTTPConnection:
    return HTTPConnection("127.0.0.1", proxy.port, timeout=SECONDS)


def test_messages_of_any_framing_go_through(server: Server, proxy: Proxy) -> None:
    """Several on one connection, in chunks or with a length."""
    client = connect(proxy)
    bodies = [b"x" * 20, b"y" * 3_000_000, b"z" * 11]
    for body in bodies:
        assert post(client, INSERT, body) == body
        assert post(client, "/", body) == body
    client.request("POST", "/", iter(bodies), encode_chunked=True)  # the server reads it so too
    assert client.getresponse().read() == b"".join(bodies)
    assert proxy.counts() == {"passed": 14}
    assert len(server.bodies) == 7


def test_an_answer_lost_after_the_request_arrived(server: Server, proxy: Proxy) -> None:
    proxy.drop_answers(NEEDLE)
    assert post(connect(proxy), "/?query=SELECT+1", b"s") == b"s"
    with pytest.raises((ConnectionError, HTTPException)):
        post(connect(proxy), INSERT, b"one")
    assert server.bodies == [b"s", b"one"]
    assert post(connect(proxy), INSERT, b"two") == b"two"


def test_a_connection_cut_within_a_request(server: Server, proxy: Proxy) -> None:
    proxy.truncate(NEEDLE)
    with pytest.raises((ConnectionError, HTTPException)):
        post(connect(proxy), INSERT, b"x" * 100_000)
    until(lambda: server.broken == 1, "the server sees half a request")
    assert server.bodies == []


def test_a_request_held_back(server: Server, proxy: Proxy) -> None:
    """Its client gives up; the request arrives when it is released."""
    held = proxy.hold(NEEDLE)
    client = connect(proxy)
    client.request("POST", INSERT, b"late")
    held.wait_until_held(SECONDS)
    client.close()
    assert server.bodies == []
    held.release()
    assert b"late" in held.answer(SECONDS)
    assert server.bodies == [b"late"]
