"""`relay verify --follow`: the audit beside production, with metrics, page and webhook."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from relay.cli.stopping import stopped_by_signal
from relay.page.figures import Figures, health
from relay.page.looking import Looking
from relay.page.routes import Page
from relay.page.samples import Samples
from relay.page.trail import Trail
from relay.serving import Serving
from relay.verify import run
from relay.verify.standing import Standing
from relay.verify.webhook import Webhook
from relay.view import look

if TYPE_CHECKING:
    from relay.settings import Settings
    from relay.verify.anomaly import Anomaly
    from relay.verify.audit import Audit
    from relay.verify.reading import Reader

log = logging.getLogger(__name__)


def follow(
    settings: Settings,
    reader: Reader,
    audit: Audit,
    say: Callable[[Anomaly], None],
    listen: str,
    webhook_url: str,
) -> None:
    """Until SIGTERM or Ctrl-C.

    Args:
        settings: of the app.
        reader: not started yet.
        audit: gets all that is read.
        say: prints an anomaly.
        listen: `HOST:PORT` of the page; empty: none.
        webhook_url: gets anomalies; empty: none does.

    Raises:
        ConfigError: the app has no journal; `listen` or `webhook_url` cannot be used.
    """
    standing, trail = Standing(time.monotonic()), Trail()
    with contextlib.ExitStack() as opened:
        webhook = None
        if webhook_url:
            webhook = opened.enter_context(contextlib.closing(Webhook(webhook_url, settings.app)))
        if listen:
            figures = Figures(standing, audit.totals, reader, webhook)
            opened.enter_context(_served(settings, listen, standing, audit, trail, figures))

        def told(anomaly: Anomaly) -> None:
            say(anomaly)
            standing.anomaly(anomaly, time.time_ns() // 1_000_000)
            if webhook is not None:
                webhook.tell(anomaly)

        run.follow(reader, audit, told, stopped_by_signal(), standing, trail.add)


@contextlib.contextmanager
def _served(
    settings: Settings,
    listen: str,
    standing: Standing,
    audit: Audit,
    trail: Trail,
    figures: Figures,
) -> Iterator[None]:
    samples = Samples()
    page = Page(
        standing,
        audit,
        trail,
        samples,
        lambda block, journal_offset: look.story_of(settings, block, journal_offset),
    )
    routes = {
        **page.routes(),
        "/metrics": lambda _: figures.shown(),
        "/healthz": lambda _: health(standing, time.monotonic()),
    }
    with Serving(listen, routes, page.headers) as serving:
        log.info("serving", extra={"page": f"http://{serving.address}/"})
        with contextlib.closing(Looking(lambda: look.Look(settings), samples)):
            yield
