"""What listens before a server and pipes: connections of two sides that end together, and are cut.

Receives connections, gives each to its subclass in a thread of its own.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

HOST = "127.0.0.1"
CONNECT_SECONDS = 2.0
PIECE = 1 << 16
"""Bytes that are read at a time."""


class Listener(ABC):
    """Listens from its making, and takes connections once `listen` is called; `close` ends it.

    Attributes:
        port: where clients connect.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listening = socket.create_server((HOST, 0))
        self.port: int = self._listening.getsockname()[1]

    def listen(self) -> None:
        """Take connections from now on."""
        self._start(self._accept)

    def cut(self) -> None:
        """Cut all connections of now."""
        with self._lock:
            cut, self._open = self._open, set()
        for one in cut:
            with contextlib.suppress(OSError):  # its other side may have ended it
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End all connections."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()

    # ---- threads -------------------------------------------------------------------------

    @abstractmethod
    def _serve(self, client: socket.socket) -> None:
        """Serve one connection, to its end."""

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        name = f"{HOST}:{self.port}"
        threading.Thread(target=work, args=arguments, daemon=True, name=name).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:  # closed
                return
            self._start(self._serve, client)

    def _joined(self, *sides: socket.socket) -> None:
        with self._lock:
            self._open |= {*sides}

    def _end(self, *sides: socket.socket) -> None:
        for one in sides:
            with self._lock:
                self._open.discard(one)
            with contextlib.suppress(OSError):  # closed by the other thread
                one.shutdown(socket.SHUT_RDWR)
