"""A line to the coordinator, which goes dead at a request that a test names.

    replica ──► Line ──► coordinator

The request itself may still arrive, or not; nobody hears an answer. While the line is dead, no
other connection is made.
"""

from __future__ import annotations

import contextlib
import socket
import threading

from tests.replicas.listener import CONNECT_SECONDS, HOST, PIECE, Listener


class Line(Listener):
    """Before one coordinator; `close` ends it.

    Attributes:
        port: where replicas connect.
    """

    def __init__(self) -> None:
        super().__init__()
        self._to = 0
        self._awaited, self._arrives = b"", False
        self._dead = threading.Event()

    def lead_to(self, port: int) -> None:
        """Lead to the coordinator at this port from now on."""
        self._to = port
        self.listen()

    def lose(self, text: str, *, arrives: bool) -> None:
        """Go dead at the next request in which this stands; `arrives`: it does, its answer not."""
        self._arrives, self._awaited = arrives, text.encode()

    def wait_until_dead(self, timeout: float = 60.0) -> None:
        """Wait until the request came.

        Raises:
            TimeoutError: it did not.
        """
        if not self._dead.wait(timeout):
            raise TimeoutError(f"no request with {self._awaited!r} came within {timeout:g} s")

    def mend(self) -> None:
        """Let everything pass again, over new connections."""
        self._awaited = b""
        self.cut()
        self._dead.clear()

    def _serve(self, client: socket.socket) -> None:
        server = None
        if not self._dead.is_set():
            with contextlib.suppress(OSError):
                server = socket.create_connection((HOST, self._to), CONNECT_SECONDS)
        if server is None:
            client.close()
            return
        server.settimeout(None)
        self._joined(client, server)
        self._start(self._answers, server, client)
        self._requests(client, server)

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := client.recv(PIECE):
                if self._awaited and self._awaited in piece and not self._dead.is_set():
                    self._dead.set()
                    if self._arrives:
                        server.sendall(piece)
                elif not self._dead.is_set():
                    server.sendall(piece)
        self._end(client, server)

    def _answers(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := server.recv(PIECE):
                if not self._dead.is_set():
                    client.sendall(piece)
        self._end(client, server)
