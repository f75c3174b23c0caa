"""`relay verify --follow`: audits beside production, with metrics, page and webhook."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from relay.config.settings import Settings
from relay.operate.page.plots import Samples, Trail
from relay.operate.page.refresh import ScreenRefresher
from relay.operate.page.routes import Page
from relay.operate.page.verifier_metrics import VerifierMetrics
from relay.operate.verify import rounds
from relay.operate.verify.audit import Audit
from relay.operate.verify.judge.anomaly import Anomaly
from relay.operate.verify.progress import AuditProgress
from relay.operate.verify.read.journal import Reader
from relay.operate.verify.webhook import Webhook
from relay.operate.view import ask
from relay.program.serving import Serving
from relay.program.waiting import stopped_by_signal
from relay.records_pb2 import Commit

log = logging.getLogger(__name__)


class Outlets(NamedTuple):
    """Where anomalies are reported beside the terminal: HOST:PORT of a page, a URL; or empty."""

    listen: str = ""
    webhook_url: str = ""


def follow(
    settings: Settings,
    reader: Reader,
    audit: Audit,
    say: Callable[[Anomaly], None],
    outlets: Outlets,
    stop: threading.Event | None = None,
    keep: Callable[[int, int, Commit], None] = lambda *_: None,
) -> None:
    """Audit what a new reader reads until SIGTERM or Ctrl-C, or until `stop` is set.

    `keep` gets partition, offset and record before they are judged.

    Raises:
        ConfigError: the app has no journal any more; one of `outlets` cannot be used.
    """
    progress = AuditProgress(time.monotonic(), time.time())
    trail, samples = Trail(), Samples()
    with contextlib.ExitStack() as opened:
        webhook = None
        if outlets.webhook_url:
            posting = Webhook(outlets.webhook_url, settings.app)
            webhook = opened.enter_context(contextlib.closing(posting))
        if outlets.listen:
            figures = VerifierMetrics(
                progress, audit.totals, reader, webhook, settings.app, samples
            )
            page = Page(
                progress,
                audit,
                trail,
                samples,
                lambda block, journal_offset: ask.story_of(settings, block, journal_offset),
            )
            routes = {
                **page.routes(),
                "/metrics": lambda _: figures.exposition(),
                "/healthz": lambda _: figures.health(time.monotonic()),
            }
            serving = opened.enter_context(Serving(outlets.listen, routes, page.headers))
            log.info("serving the page", extra={"page": f"http://{serving.address}/"})
            refresher = ScreenRefresher(lambda: ask.StatusReader(settings, lasting=True), samples)
            opened.enter_context(contextlib.closing(refresher))

        def report(anomaly: Anomaly) -> None:
            say(anomaly)
            progress.anomaly(anomaly, time.time_ns() // 1_000_000)
            if webhook is not None:
                webhook.tell(anomaly)

        def kept(partition: int, offset: int, commit: Commit) -> None:
            keep(partition, offset, commit)
            trail.add(partition, offset, commit)

        rounds.follow(reader, audit, report, stop or stopped_by_signal(), progress, kept)
