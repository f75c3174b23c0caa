"""The page over made-up data, without servers: what a browser can be pointed at."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from relay.errors import ConfigError, Unavailable
from relay.operate.page.plots import Samples, Trail
from relay.operate.page.routes import Page
from relay.operate.verify.audit import Audit
from relay.operate.verify.judge.anomaly import Anomaly, AnomalyKind
from relay.operate.verify.progress import AuditProgress
from relay.operate.view.block_story import Chunks, Landed, LedgerChange, Story, TablePart
from relay.operate.view.facts import (
    ConsumerGroup,
    GroupMember,
    LedgerFacts,
    ParkedBlock,
    StatusFacts,
)
from relay.operate.view.journal_state import JournalState, Listed
from relay.operate.view.status import as_json, assemble
from relay.program.serving import Serving
from tests.view.records import APP, block, commit, dead

HOSTILE = '<img src=x onerror="document.title=id"><script>document.title=top</script>'
ANOMALY = Anomaly(AnomalyKind.GAP, 1, 48, 96, "n=48 after n=46")
LATEST = f"{APP}:shop.orders:0:0:995"


@dataclass
class Built:
    """A page's parts; fields may be changed while it is served."""

    now_ms: int
    standing: AuditProgress = field(default_factory=lambda: AuditProgress(0.0, 0.0))
    audit: Audit = field(default_factory=lambda: Audit(APP, "rows", 10.0))
    trail: Trail = field(default_factory=Trail)
    samples: Samples = field(default_factory=Samples)
    asked: list[tuple[str, int]] = field(default_factory=list)

    def page(self) -> Page:
        return Page(self.standing, self.audit, self.trail, self.samples, self.story)

    @contextlib.contextmanager
    def served(self) -> Iterator[str]:
        """Its address."""
        page = self.page()
        with Serving("127.0.0.1:0", page.routes(), page.headers) as serving:
            yield serving.address

    def story(self, name: str, journal_offset: int) -> Story:
        self.asked.append((name, journal_offset))
        if name.endswith(":404"):
            raise ConfigError(f"nobody knows block {name}")
        if name.endswith(":502"):
            raise Unavailable("the brokers did not answer: timed out", "check the brokers")
        made = block(int(name.rpartition(":")[2]), "shop.orders", rows=1_200, row_bytes=96_000)
        made.id = name
        listed = Listed(made, 0, journal_offset, commit(200, made, at_ms=self.now_ms))
        landed = Landed(
            ledger=(
                LedgerChange(self.now_ms, "prepared", 1, "c1", 1_200, ""),
                LedgerChange(self.now_ms + 80, "loaded", 1, "c1", 1_200, HOSTILE),
            ),
            rows=1_200,
            parts=(TablePart("all_7_7_0", 1_200, "2026-11-21 12:00:00"),),
        )
        return Story(name, listed, Chunks(0, 1, 1_200), landed)

    def screen(self, *, held: int = 0, lag: int = 0, lag_seconds: float = 0.4) -> dict[str, Any]:
        """As `relay status --json` prints it, with names that a browser could mistake."""
        seen = JournalState()
        at_ms = self.now_ms - 900
        first_ms = self.now_ms - round(lag_seconds * 1_000)
        seen.add(
            0,
            0,
            commit(
                199,
                block(0, HOSTILE, sealed_at_ms=at_ms, first_timestamp_ms=first_ms),
                block(0, "shop.customers", sealed_at_ms=at_ms, first_timestamp_ms=first_ms),
                floor=1_200,
                position=1_200 + held,
                at_ms=at_ms,
                epoch=0,
                dead=[dead("shop.orders", 3, HOSTILE)],
            ),
        )
        seen.add(1, 0, commit(48, floor=900, at_ms=at_ms))
        counts = (
            ("shop.orders", "loaded", 4_210, 5_052_000),
            ("shop.customers", "loaded", 12, 900),
            ("shop.orders", "parked", 1, 700),
        )
        parked = ParkedBlock(f"{APP}:shop.orders:1:0:40", "shop.orders", 700, HOSTILE, at_ms)
        facts = StatusFacts(
            app=APP,
            source="rows",
            now_ms=self.now_ms,
            journal=True,
            group=ConsumerGroup("stable", (GroupMember("a", "10.0.0.7", (0, 1)),)),
            ends={0: 1_200 + held + lag, 1: 900},
            ledger=LedgerFacts(there=True, counts=counts, parked=(parked,)),
            audited=247,
        )
        return as_json(assemble(seen, facts))


def built(now_ms: int) -> Built:
    """Ten busy minutes, which end at `now_ms`, Unix milliseconds."""
    made = Built(now_ms)
    for n in range(200):
        at_ms = now_ms - 600_000 + n * 3_000
        size = round(60_000 + 40_000 * math.sin(n / 9) + 900 * (n % 7))
        one = block(n * 5, "shop.orders", rows=size // 80, row_bytes=size, sealed_at_ms=at_ms)
        record = commit(n + 1, one, floor=n * 5 + 5, at_ms=at_ms)
        made.trail.add(0, n * 2, record)
        made.audit.totals.add(record)
        made.standing.record(0, n * 2, record, float(n))
        quiet = 90 <= n < 100
        if quiet:
            made.samples.fail(at_ms, "the brokers did not answer")
            continue
        late = 0.3 + (4.0 if 120 < n < 140 else 0.2 * (n % 3))
        made.now_ms = at_ms
        made.samples.add(made.screen(lag=n * 37 % 400, lag_seconds=late))
    made.now_ms = now_ms
    made.samples.add(made.screen(lag=120, held=40))
    made.standing.turned(200.0, now_ms / 1000)
    return made
