"""What follows a round: a pause in which everything has to arrive, and the verdict.

Receives a campaign whose faults are undone. What does not arrive in bounded time is an anomaly
like a row that came twice.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from tests.chaos import ends, facts, journal_file, judges
from tests.chaos.campaign import SETTLE_SECONDS
from tests.chaos.options import Report
from tests.chaos.table_faults import all_as_before

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.chaos.campaign import Campaign


MOST = 4
"""Times the limit, after which what still comes does so too slowly."""


def pause(campaign: Campaign) -> bool:
    """Stop the source, wait until all has arrived, and ask the light judges."""
    begun = time.monotonic()
    campaign.source.pause()
    last = campaign.source.close_partitions()
    limit = SETTLE_SECONDS * campaign.options.patience
    good = campaign.until(lambda: _passed(campaign, last), limit, "relays passed the source's end")
    good = good and _arrived(campaign, 2 * limit)
    campaign.pauses.append(time.monotonic() - begun)
    servers = campaign.servers
    found = _settled(campaign, lambda: judges.torn(ends.heads(servers)))
    found += _settled(campaign, lambda: judges.hanging(ends.stables(servers)))
    for what in found:
        campaign.anomaly(what)
    journal_file.pause(servers, campaign.directory)
    campaign.history.write(
        "pause", seconds=campaign.pauses[-1], anomalies=found, figures=campaign.figures()
    )
    campaign.settled = True
    return good and not found


def _arrived(campaign: Campaign, limit: float) -> bool:
    """Whether all rows came. A crowded machine is slow: so long as blocks come, it is waited."""
    there, since = -1, time.monotonic()

    def over() -> bool:
        nonlocal there, since
        if all_as_before(campaign) and _all_loaded(campaign):
            return True
        if (now := sum(facts.count_rows(campaign.servers).values())) > there:
            there, since = now, time.monotonic()
        return time.monotonic() - since > limit

    campaign.until(over, MOST * limit, "all rows are in ClickHouse")
    return campaign.until(lambda: _all_loaded(campaign), 1.0, f"a row within {limit:g} s")


def judge(campaign: Campaign) -> dict[str, int]:
    """Every judge, while the source is paused; the figures that they judged on."""
    campaign.say("reading everything for the judges")
    verdict = judges.whole(facts.whole(campaign.servers, campaign.source.truth))
    for name, found in verdict.anomalies.items():
        for what in found:
            campaign.anomaly(f"{name}: {what}")
    return verdict.figures


def report(campaign: Campaign) -> Report:
    """The verdict of everything that was done; nothing can be done after it."""
    campaign.judging = True
    if not campaign.settled:
        pause(campaign)
    for program in campaign.programs():
        program.wanted = False
        program.ask_to_end()
    for program in campaign.programs():
        program.stop()
        for status, expected in program.ends[-1:]:
            if not expected:
                campaign.anomaly(f"{program.name} ended with {status}", program.last_lines())
    campaign.source.finish()
    journal_file.end(campaign.servers, campaign.directory)
    figures = {**campaign.figures(), **judge(campaign)}
    seconds = round(time.monotonic() - campaign.begun, 1)
    campaign.history.write("verdict", anomalies=campaign.anomalies, figures=figures)
    return Report(campaign.options.seed, dict(campaign.anomalies), figures, seconds)


def _passed(campaign: Campaign, last: dict[int, int]) -> bool:
    found = ends.floors(campaign.servers)
    return all(found.get(p, -1) > offset for p, offset in last.items())


def _all_loaded(campaign: Campaign) -> bool:
    """Each table has as many rows as its blocks; those of parked ones wait for a person."""
    servers = campaign.servers
    parked, there = facts.parked(servers), facts.count_rows(servers)
    missing = Counter({table: -rows for table, rows in there.items()})
    for commits in facts.journal(servers).values():
        for block in (b for commit in commits for b in commit.blocks):
            missing[facts.table_of(block)] += block.rows
    return all(rows <= parked.get(table, 0) for table, rows in missing.items())


def _settled(campaign: Campaign, judged: Callable[[], list[str]]) -> list[str]:
    """What a judge still says after the time in which markers must have been written."""
    last: list[str] = []

    def clean() -> bool:
        last[:] = judged()
        return not last

    deadline = time.monotonic() + SETTLE_SECONDS
    while not campaign.holds(clean) and time.monotonic() < deadline:
        campaign.turn()
    return last
