"""Answers the browser: the page, its data, and one block's story."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any

from relay.errors import ConfigError, RelayError
from relay.names import BlockId
from relay.operate.page.plots import STEP_SECONDS, Samples, Trail
from relay.operate.verify.audit import Audit
from relay.operate.verify.progress import AuditProgress
from relay.operate.view.block_story import Story, story_as_json
from relay.program.serving import Answer, Route

_JSON = "application/json; charset=utf-8"
_BUSY_SECONDS = 20.0
"""How long a question about a block waits for the one before; each reads from the journal."""

_SHOWN = 100
"""The page lists the latest so many of what people acknowledged."""

TellStory = Callable[[str, int], Story]
"""Block id, and the journal offset to begin at."""


def html() -> str:
    """Return the page."""
    return resources.files("relay.operate.page").joinpath("page.html").read_text(encoding="utf-8")


def content_security_policy(page: str) -> str:
    """Return a policy: the page's own style and script, by hash, and this server's data."""
    hashes = {
        tag: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for tag in ("style", "script")
        for text in re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    }
    return (
        f"default-src 'none'; style-src 'sha256-{hashes['style']}'; "
        f"script-src 'sha256-{hashes['script']}'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )


class Page:
    """Answers from what is known now."""

    def __init__(
        self,
        progress: AuditProgress,
        audit: Audit,
        trail: Trail,
        samples: Samples,
        story: TellStory,
    ) -> None:
        self._progress, self._audit = progress, audit
        self._trail, self._samples, self._story = trail, samples, story
        self._page = html()
        self._one = threading.Lock()
        self.headers = {
            "Content-Security-Policy": content_security_policy(self._page),
            "Referrer-Policy": "no-referrer",
        }

    def routes(self) -> dict[str, Route]:
        """Return the routes by path."""
        return {"/": self._html, "/data": self._data, "/block": self._block}

    def _html(self, _: Mapping[str, str]) -> Answer:
        return 200, "text/html; charset=utf-8", self._page.encode()

    def _data(self, _: Mapping[str, str]) -> Answer:
        screen, problem = self._samples.latest()
        points = self._samples.points()
        now_ms = time.time_ns() // 1_000_000
        progress = self._progress
        kinds = {kind.value: n for kind, n in progress.kinds().items()}
        settled = sum(self._audit.totals.settled.values())
        return _json(
            200,
            {
                "at_ms": now_ms,
                "status": screen,
                "problem": problem,
                "verifier": {
                    "records": self._audit.totals.records,
                    "anomalies": max(sum(kinds.values()) - settled, 0),
                    "settled": settled,
                    "by_kind": kinds,
                    "acknowledged": self._audit.acknowledged[-_SHOWN:],
                    "acknowledged_in_all": len(self._audit.acknowledged),
                    "told": [
                        {**reported.as_json(), "settled": self._audit.settled(reported.anomaly)}
                        for reported in progress.reported()
                    ],
                    "problem": progress.problem,
                    "turned_at_ms": round(progress.turned_at * 1000) if progress.rounds else None,
                },
                "plots": {
                    "step_ms": STEP_SECONDS * 1000,
                    "rate": self._trail.rates(now_ms),
                    "lag": [(point.at_ms, point.lag) for point in points],
                    "queryable": [(point.at_ms, point.seconds) for point in points],
                },
                "blocks": self._trail.blocks(),
            },
        )

    def _block(self, query: Mapping[str, str]) -> Answer:
        """One at a time: each makes clients, and may read the whole of a journal partition."""
        name = query.get("id", "")
        try:
            BlockId.parse(name)
        except ValueError:
            return _json(404, {"problem": "not a block id"})
        if not self._one.acquire(timeout=_BUSY_SECONDS):
            return _json(503, {"problem": "busy with another block; ask again"})
        try:
            return _json(200, story_as_json(self._story(name, self._trail.journal_offset(name))))
        except ConfigError as error:
            return _json(404, {"problem": error.message})
        except RelayError as error:
            return _json(502, {"problem": error.message})
        finally:
            self._one.release()


def _json(status: int, value: dict[str, Any]) -> Answer:
    return status, _JSON, json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
