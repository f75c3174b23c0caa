"""Posts anomalies to an operator's URL as JSON, without delaying the audit.

A thread of its own sends them, again where that may help. What cannot be delivered is counted and
logged, without the URL's path, which may be a secret.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import queue
import threading
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import urllib3
from urllib3.exceptions import HTTPError, LocationParseError
from urllib3.util import make_headers, parse_url

from relay.errors import ConfigError
from relay.operate.verify.judge.anomaly import Anomaly
from relay.program.waiting import pauses

log = logging.getLogger(__name__)

_AGAIN = frozenset({408, 425, 429})
"""Answers, beside all from 500 on, after which the same request may succeed."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one anomaly is tried.

    Attributes:
        timeout_seconds: for the connection, and for each part of the answer.
        attempts: in all.
        backoff_seconds: before the second attempt; twice as long before each further one.
        waiting: anomalies that wait to be sent; of more, the newest are dropped.
        end_seconds: for those that still wait when the verifier ends.
    """

    timeout_seconds: float = 5.0
    attempts: int = 6
    backoff_seconds: float = 0.5
    waiting: int = 1_000
    end_seconds: float = 5.0


@dataclass(slots=True)
class Counts:
    """Anomalies by what became of them; `retries` counts requests."""

    delivered: int = 0
    failed: int = 0
    dropped: int = 0
    retries: int = 0


def body(app: str, anomaly: Anomaly, at_ms: int) -> dict[str, Any]:
    """Return the JSON document that is posted for an anomaly: its fields, `app`, `at_ms` and `id`.

    The id is the same whenever the same anomaly is told again, as a verifier does that was started
    again.
    """
    fields = {"app": app, **anomaly.as_json()}
    digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    return {"id": digest[:16], "at_ms": at_ms, **fields}


class Webhook:
    """Sends until `close()`.

    Args:
        url: http or https; user and password in it become basic authentication.

    Raises:
        ConfigError: it is no such URL.
    """

    def __init__(self, url: str, app: str, patience: Patience | None = None) -> None:
        self._patience = patience or Patience()
        self._app = app
        self._url, self._headers, self._shown = _checked(url)
        timeout = urllib3.Timeout(self._patience.timeout_seconds)
        self._pool = urllib3.PoolManager(num_pools=1, timeout=timeout)
        self._queue: queue.Queue[dict[str, Any] | None] = queue.Queue(self._patience.waiting)
        self._closing = threading.Event()
        self._deadline = float("inf")
        self.counts = Counts()
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)
        self._thread.start()

    def tell(self, anomaly: Anomaly) -> None:
        """Queue the anomaly for the webhook without waiting; drop it if the queue is full."""
        try:
            self._queue.put_nowait(body(self._app, anomaly, time.time_ns() // 1_000_000))
        except queue.Full:
            self.counts.dropped += 1
            log.warning(
                "webhook: too many anomalies wait to be posted, dropping some",
                extra={"dropped": self.counts.dropped},
            )

    def close(self) -> None:
        """Send what waits, for `end_seconds` at most; say how many were not delivered."""
        self._deadline = time.monotonic() + self._patience.end_seconds
        self._closing.set()
        # Where there is no room in time, the thread sees by the clock that this is the end.
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=self._patience.end_seconds)
        self._thread.join(self._patience.end_seconds + self._patience.timeout_seconds)
        if waiting := self._queue.qsize():
            log.warning(
                "webhook: the verifier ended before all anomalies were posted",
                extra={"anomalies": waiting},
            )

    def _run(self) -> None:
        while time.monotonic() <= self._deadline and (item := self._queue.get()) is not None:
            if self._send(item):
                self.counts.delivered += 1
            else:
                self.counts.failed += 1

    def _send(self, item: dict[str, Any]) -> bool:
        """Return whether the receiver accepted the anomaly."""
        attempts = range(1, self._patience.attempts + 1)
        for attempt, pause in zip(attempts, pauses(self._patience.backoff_seconds), strict=False):
            problem, again = self._posted(item)
            if not problem:
                return True
            more = again and attempt < self._patience.attempts
            info = {"to": self._shown, "anomaly": item["id"], "attempt": attempt, "why": problem}
            log.warning(
                "webhook: the receiver did not accept an anomaly, posting it again"
                if more
                else "webhook: gave up posting an anomaly",
                extra=info,
            )
            if not more or not self._pause(pause):
                return False
            self.counts.retries += 1
        return False

    def _pause(self, seconds: float) -> bool:
        """Wait before the next attempt; whether there is time for one."""
        if self._closing.is_set():
            seconds = min(seconds, self._deadline - time.monotonic())
            return seconds > 0 and not threading.Event().wait(seconds)
        self._closing.wait(seconds)
        return True

    def _posted(self, item: dict[str, Any]) -> tuple[str, bool]:
        """(what went wrong, or empty; whether to try again)."""
        try:
            answer = self._pool.request(
                "POST",
                self._url,
                json=item,
                headers=self._headers,
                retries=False,
                redirect=False,
                preload_content=False,
            )
            status = answer.status
            answer.close()  # what it says beside the status is of no use, and of any length
        except HTTPError as error:
            return type(error).__name__, True
        if 200 <= status < 300:
            return "", False
        return f"status {status}", status >= 500 or status in _AGAIN


def _checked(url: str) -> tuple[str, dict[str, str], str]:
    """URL, headers, and as much of the URL as may be shown."""
    try:
        parts = parse_url(url)
    except LocationParseError:
        parts = parse_url("")
    if parts.scheme not in {"http", "https"} or not parts.host:
        raise ConfigError("the webhook's URL is not http or https", "write it as https://host/path")
    headers = make_headers(basic_auth=unquote(parts.auth)) if parts.auth else {}
    return url, {**headers, "Content-Type": "application/json"}, f"{parts.scheme}://{parts.host}"
