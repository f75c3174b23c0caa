"""What stands before replicas: of one a proxy, of several a balancer. TCP, that knows HTTP's ends.

    client ──► Front ──► replica, or the next of several for each connection

A connection stays with its server. A server that refuses one is passed over, as balancers do.
The last bytes of a request can be held back: the server has its beginning, runs the statement and
waits for the rest.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from tests.replicas.listener import CONNECT_SECONDS, HOST, PIECE, Listener

HELD_BYTES = 16
"""Of a request's end."""
_END_OF_HEAD = b"\r\n\r\n"
_CONNECTION = b"connection:"

Address = tuple[str, int]


@dataclass(slots=True)
class Held:
    """A request whose end is held back.

    Attributes:
        text: stands in its beginning.
    """

    text: bytes
    _is_held: threading.Event = field(default_factory=threading.Event)
    _released: threading.Event = field(default_factory=threading.Event)

    def wait_until_held(self, timeout: float = 60.0) -> None:
        """Wait until all but its end is on the way to the server.

        Raises:
            TimeoutError: none came.
        """
        if not self._is_held.wait(timeout):
            raise TimeoutError(f"no request with {self.text!r} came within {timeout:g} s")

    def hold(self) -> None:
        """Called by the connection: the end is here."""
        self._is_held.set()
        self._released.wait()

    def release(self) -> None:
        """Send the end."""
        self._released.set()


class Front(Listener):
    """Before `servers`; `close` ends it.

    Args:
        servers: behind it.
        each_request: goes over a connection of its own, as behind a balancer that knows HTTP.

    Attributes:
        address: where clients connect, host:port.
        url: the same for HTTP.
    """

    def __init__(self, servers: Sequence[Address], *, each_request: bool = False) -> None:
        super().__init__()
        self.each_request = each_request
        self._servers, self._turn = list(servers), itertools.count()
        self._awaited: list[Held] = []
        self._refusing = False
        self.address = f"{HOST}:{self.port}"
        self.url = f"http://{self.address}"
        self.listen()

    def hold(self, text: str) -> Held:
        """Hold the end of the next request in whose first 4 KiB this stands, URL or body."""
        held = Held(text.encode())
        with self._lock:
            self._awaited.append(held)
        return held

    def refuse(self, refusing: bool = True) -> None:  # noqa: FBT002 - as a switch reads
        """Cut all connections, and new ones from now on; or no longer."""
        self._refusing = refusing
        if refusing:
            self.cut()

    def move(self, *servers: Address) -> None:
        """Lead to these from now on; connections of now are cut."""
        self._servers = list(servers)
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all connections, and what is held."""
        super().close()
        with self._lock:
            for held in self._awaited:
                held.release()

    # ---- threads -------------------------------------------------------------------------

    def _serve(self, client: socket.socket) -> None:
        server = None if self._refusing else self._next()
        if server is None:
            client.close()
            return
        self._joined(client, server)
        self._start(self._pipe, server, client)
        with contextlib.suppress(OSError, _Ended):  # either side ended: so does the other
            stream = _Stream(client)
            while True:
                self._request(stream, server)
        self._end(client, server)

    def _next(self) -> socket.socket | None:
        for _ in self._servers:
            with self._lock:
                at = next(self._turn) % len(self._servers)
            with contextlib.suppress(OSError):  # away: the next
                return socket.create_connection(self._servers[at], CONNECT_SECONDS)
        return None

    def _pipe(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):  # as above
            source.settimeout(None)
            while piece := source.recv(PIECE):
                sink.sendall(piece)
        self._end(source, sink)

    def _request(self, stream: _Stream, server: socket.socket) -> None:
        head = stream.until(_END_OF_HEAD)
        if self.each_request:
            lines = [one for one in head.split(b"\r\n") if not one.lower().startswith(_CONNECTION)]
            head = b"\r\n".join([*lines[:-2], _CONNECTION + b" close", b"", b""])
        left = _length(head)
        first = stream.take(min(left, 4096))
        held = self._wanted(head + first)
        left -= len(first)
        if held is None:
            server.sendall(head + first)
            while left:
                piece = stream.take(min(left, PIECE))
                server.sendall(piece)
                left -= len(piece)
            return
        whole = head + first + stream.take(left)
        server.sendall(whole[:-HELD_BYTES])
        held.hold()
        server.sendall(whole[-HELD_BYTES:])

    def _wanted(self, beginning: bytes) -> Held | None:
        with self._lock:
            for held in self._awaited:
                if held.text in beginning:
                    self._awaited.remove(held)
                    return held
        return None


class _Ended(Exception):
    """The client's side ended."""


class _Stream:
    """Bytes of a connection, as many as are asked for."""

    def __init__(self, source: socket.socket) -> None:
        self._source, self._rest = source, b""

    def until(self, end: bytes) -> bytes:
        while end not in self._rest:
            self._more()
        at = self._rest.index(end) + len(end)
        return self._cut(at)

    def take(self, size: int) -> bytes:
        pieces, left = [], size
        while left:
            if not self._rest:
                self._more()
            piece = self._cut(min(left, len(self._rest)))
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def _cut(self, at: int) -> bytes:
        taken, self._rest = self._rest[:at], self._rest[at:]
        return taken

    def _more(self) -> None:
        piece = self._source.recv(PIECE)
        if not piece:
            raise _Ended
        self._rest += piece


def _length(head: bytes) -> int:
    """Of the body, as the head says."""
    for line in head.lower().split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name == b"transfer-encoding":
            raise NotImplementedError("a request in chunks")
        if name == b"content-length":
            return int(value)
    return 0
