"""Time for ages and intervals: the wall clock's number, and the monotonic clock's pace."""

from __future__ import annotations

import re
from pathlib import Path

from relay.program.monotonic import Steady

PACKAGES = (Path("relay"), Path("loader"))
WALL = re.compile(r"time\.time(?:_ns)?\(\)|datetime\.now\(|utcnow\(")
FOR_PEOPLE_AND_RECORDS = {
    "relay/program/monotonic.py": "read once",
    "relay/process/perform.py": "written_at of a journal record",
    "relay/schema/registry.py": "written_at of a schema",
    "relay/operate/dead/replay.py": "a mark's time",
    "relay/operate/metrics/vitals.py": "compared with messages' own times",
    "relay/produce/row_producer.py": "an example in its description",
    "relay/cli/arguments.py": "what a person gives as an age",
    "relay/cli/accept.py": "when a person said so",
    "relay/cli/rewind.py": "when a person said so",
    "relay/cli/verify/follow.py": "when an anomaly was told",
    "relay/cli/verify/several.py": "when an anomaly was told",
    "relay/cli/output/verify.py": "when an anomaly was told",
    "relay/operate/verify/webhook.py": "when an anomaly was told",
    "relay/operate/verify/rounds.py": "when a round ended, as a gauge shows it",
    "relay/operate/verify/deep.py": "compared with what journal records say",
    "relay/operate/verify/landing.py": "compared with what journal records say",
    "relay/operate/view/ask.py": "compared with what journal records say",
    "relay/operate/page/refresh.py": "shown",
    "relay/operate/page/routes.py": "shown",
    "relay/operate/doctor/ask/clickhouse.py": "compared with a server's clock",
    "relay/operate/doctor/ask/broker_clock.py": "compared with a broker's clock",
    "loader/blocks/insert_groups.py": "compared with what journal records say, as a metric",
    "loader/metrics/gauges.py": "compared with what journal records say, as a metric",
    "loader/cli/status.py": "compared with what journal records say",
}
"""Every module that reads the wall clock, and for what: none measures an interval by it."""


def test_it_runs_as_the_monotonic_clock_does() -> None:
    wall_ms, monotonic = 1_700_000_000_000, 50.0
    now = Steady(lambda: wall_ms, lambda: monotonic)
    assert now() == wall_ms
    for step_ms in (-600_000, 600_000, 0):
        wall_ms += step_ms
        before = now()
        monotonic += 1.5
        assert now() - before == 1_500


def test_who_reads_the_wall_clock_and_why() -> None:
    root = Path(__file__).parents[2]
    found = {
        str(path.relative_to(root))
        for package in PACKAGES
        for path in (root / package).rglob("*.py")
        if WALL.search(path.read_text(encoding="utf-8"))
    }
    assert found == FOR_PEOPLE_AND_RECORDS.keys()
