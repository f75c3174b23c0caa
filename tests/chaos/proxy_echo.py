"""A tiny server that answers what it is sent, and a client of it: what the proxy is tried with."""

from __future__ import annotations

import socket
import socketserver
import struct
import time
from collections.abc import Callable

from tests.chaos.proxy import Proxy

SECONDS = 20.0
"""Longest wait for what must come; far more than it takes."""


class Echo(socketserver.ThreadingTCPServer):
    """Answers every Kafka request with its own body; remembers what came whole."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _EchoHandler)
        self.received: list[tuple[int, int]] = []
        """(API key, correlation id) in the order of arrival."""
        self.broken = 0
        """Connections that ended inside a message."""
        self.ended = 0
        self.address = ("127.0.0.1", int(self.server_address[1]))


class _EchoHandler(socketserver.StreamRequestHandler):
    server: Echo

    def handle(self) -> None:
        try:
            while head := self.rfile.read(4):
                body = self.rfile.read(size := struct.unpack(">i", head)[0])
                if len(body) < size:
                    self.server.broken += 1
                    return
                api, _, correlation = struct.unpack_from(">hhi", body)
                self.server.received.append((api, correlation))
                self.wfile.write(struct.pack(">ii", 4 + size, correlation) + body)
        except ConnectionError:
            self.server.broken += 1
        finally:
            self.server.ended += 1


class Client:
    """One connection that sends Kafka requests and reads their answers."""

    def __init__(self, proxy: Proxy, name: str = "app.a") -> None:
        self.socket = socket.create_connection(("127.0.0.1", proxy.port), timeout=SECONDS)
        self._name = name.encode()

    def send(self, api: int, correlation: int, payload: bytes = b"") -> None:
        head = struct.pack(">hhih", api, 1, correlation, len(self._name)) + self._name
        self.socket.sendall(struct.pack(">i", len(head) + len(payload)) + head + payload)

    def answer(self) -> int:
        """Correlation id of the next answer. Raises ConnectionError: the connection ended."""
        head = self.exactly(4)
        return int(struct.unpack_from(">i", self.exactly(struct.unpack(">i", head)[0]))[0])

    def ask(self, api: int, correlation: int, payload: bytes = b"") -> int:
        self.send(api, correlation, payload)
        return self.answer()

    def hears_nothing(self) -> bool:
        """Whether the connection is open and silent, for a while."""
        self.socket.settimeout(0.3)
        try:
            self.socket.recv(1)  # a byte or the end
        except TimeoutError:
            return True
        else:
            return False
        finally:
            self.socket.settimeout(SECONDS)

    def exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise ConnectionResetError("the connection ended")
            data += piece
        return data


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"did not come within {SECONDS:g} s: {what}"
        time.sleep(0.01)
