"""Of an answer that was cut short no client makes an empty one."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest
from urllib3.exceptions import HTTPError

from relay.clickhouse.http_pool import pool

BODY = b"12 rows of 345"
HEADS = {
    "length": b"HTTP/1.1 200 OK\r\nX-ClickHouse-Format: Native\r\nContent-Length: 14\r\n\r\n",
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-ClickHouse-Format: TSV\r\n\r\n",
}
ANSWERS = {
    "length": HEADS["length"] + BODY,
    "chunked": HEADS["chunked"] + b"e\r\n" + BODY + b"\r\n0\r\n\r\n",
}


class Server:
    """Answers each connection with `answer` and closes it."""

    def __init__(self) -> None:
        self.answer = b""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            with connection:
                request = b""
                while not request.endswith(b"\r\n\r\n"):
                    if not (piece := connection.recv(65_536)):
                        return
                    request += piece
                connection.sendall(self.answer)

    def stop(self) -> None:
        socket.create_connection(("127.0.0.1", self.port)).close()
        self._thread.join()
        self._listening.close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.stop()


def read(server: Server) -> bytes:
    made = pool("http", "127.0.0.1", server.port)
    answer = made.request(
        "GET", f"http://127.0.0.1:{server.port}/", retries=0, timeout=20, preload_content=False
    )
    try:
        return answer.read()
    finally:
        answer.close()


@pytest.mark.parametrize("framing", ANSWERS)
def test_an_answer_cut_anywhere_is_an_error(server: Server, framing: str) -> None:
    """After every single byte; and whole it is what it was."""
    server.answer = ANSWERS[framing]
    assert read(server) == BODY
    # The last chunk's own line break says nothing new.
    for size in range(len(ANSWERS[framing]) - (4 if framing == "chunked" else 0)):
        server.answer = ANSWERS[framing][:size]
        with pytest.raises(HTTPError):
            print(size, read(server))


def test_processes_and_proxies_have_pools_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's proxy is used as without a pool, but for hosts that it leaves out."""
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    plain = pool("http", "example.com", 80)
    assert pool("http", "example.org", 8123) is plain
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:3128")
    over = pool("http", "example.com", 80)
    assert over.proxy.port == 3128
    assert plain.proxy is None
    monkeypatch.setenv("NO_PROXY", "example.com")
    assert pool("http", "example.com", 80) is plain
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert pool("http", "example.com", 80) is not plain
