"""Whoever gets the verifier's webhook, in a thread of this process."""

from __future__ import annotations

import json
import threading
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = "path-that-nobody-may-see"


class Receiver:
    """Answers with one status after the other, the last for ever; 0 hangs until `go`."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.taken: list[dict[str, Any]] = []
        self.headers: list[Message] = []
        self.go = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/{SECRET}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        self.headers.append(request.headers)
        self.taken.append(json.loads(request.rfile.read(int(request.headers["Content-Length"]))))
        if status == 0:
            self.go.wait(60)
            return
        request.send_response(status)
        request.send_header("Location", self.url)
        request.send_header("Content-Length", "0")
        request.end_headers()

    def close(self) -> None:
        self.go.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
