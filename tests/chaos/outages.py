"""Campaigns in which several servers go at once: everything killed together, all brokers away for
minutes, a broker that lost the end of its files.

Receives a running campaign, performs rounds with faults of its own, and gives figures; what the
programs do while all brokers are away is judged here, everything else by the common judges.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from relay.dev import broker
from tests.chaos import ends
from tests.chaos.pauses import pause
from tests.chaos.schedule import Fault
from tests.chaos.segments import cut_ends, whole
from tests.chaos.server_faults import all_brokers_run, started

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.chaos.campaign import Campaign, Task
    from tests.chaos.programs import Program

PROGRESS_SECONDS = 60.0
"""Until every partition has had a further transaction; told as an anomaly by the campaign."""
CYCLES_EACH_PAUSE = 5
BUSY = 0.25
"""Of a processor, that a program may take while every broker is away: more is a spin."""
GROWTH_BYTES = 40_000_000
"""Of a program meanwhile: room for what librdkafka keeps to send, none for more with each try."""
LINES_PER_SECOND = 5.0
"""Of a program's log meanwhile, on average."""


# ---- relay, loader and brokers killed together: the 50th fault ---------------------------------


def together(campaign: Campaign, count: int) -> dict[str, Any]:
    """SIGKILL for everything but ClickHouse, `count` times; progress after each."""
    chance = random.Random(f"together {campaign.options.seed}")
    taken = []
    for number in range(count):
        strike = Fault(chance.uniform(0.5, 4.0), "kill_together", 0, chance.uniform(0.0, 2.0), "")
        campaign.round([strike], kill_together, strike.at + strike.seconds + 0.5)
        taken.append(progress(campaign))
        if (number + 1) % CYCLES_EACH_PAUSE == 0:
            pause(campaign)
    return {"longest_recovery_seconds": round(max(taken, default=0.0), 1)}


def kill_together(campaign: Campaign, fault: Fault) -> Sequence[Task]:
    """All relays, all loaders and all brokers, one right after the other."""
    place, count = campaign.servers.place, campaign.servers.brokers
    for program in [*campaign.members, *campaign.loaders]:
        program.kill()
    for index in range(count):
        broker.kill(place, index)

    return [(fault.seconds, "undo brokers", lambda: all_started(campaign))]


def all_started(campaign: Campaign) -> None:
    """Start every broker before any is waited for: one alone has no quorum."""
    campaign.servers.heal()


def progress(campaign: Campaign) -> float:
    """Seconds until every partition has had a further transaction."""
    begun = time.monotonic()
    campaign.source.resume()
    before: dict[int, tuple[int, int, int]] = {}

    def went_on() -> bool:
        found = ends.committed(campaign.servers)
        if not before:
            before.update(found)
            return False
        return all(found[p][1] > n for p, (_, n, _) in before.items())

    limit = PROGRESS_SECONDS * campaign.options.patience
    campaign.until(went_on, limit, "a further transaction in every partition")
    return time.monotonic() - begun


# ---- all brokers away: the 19th -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rest:
    """What a program used while every broker was away.

    Attributes:
        seconds: on the clock.
        busy_seconds: of processors.
        grown: resident bytes at the end less those at the beginning.
        lines: written to its log.
    """

    seconds: float
    busy_seconds: float
    grown: int
    lines: int


def judge_rest(name: str, rest: Rest) -> list[str]:
    """A program that waits neither spins, nor grows, nor fills its log."""
    found = []
    if (share := rest.busy_seconds / rest.seconds) > BUSY:
        found.append(f"{name} took {share:.0%} of a processor while every broker was away")
    if rest.grown > GROWTH_BYTES:
        found.append(f"{name} grew by {rest.grown / 1e6:.0f} MB while every broker was away")
    if (rate := rest.lines / rest.seconds) > LINES_PER_SECOND:
        found.append(f"{name} wrote {rate:.0f} lines a second while every broker was away")
    return found


def outage(campaign: Campaign, seconds: float) -> dict[str, Any]:
    """All brokers killed in the midst of work, away for so long, and started again."""
    used: dict[str, Rest] = {}

    def away(campaign: Campaign, fault: Fault) -> Sequence[Task]:
        place, count = campaign.servers.place, campaign.servers.brokers
        for index in range(count):
            broker.kill(place, index)
        begun = [Measured(program) for program in [*campaign.members, *campaign.loaders]]

        def over() -> None:
            for one in begun:
                if (rest := one.rest()) is not None:
                    used[one.program.name] = rest
            all_started(campaign)

        return [(fault.seconds, "undo brokers", over)]

    campaign.round([Fault(5.0, "brokers_away", 0, seconds, "")], away, 5.0 + seconds + 1.0)
    taken = progress(campaign)
    campaign.round((), away, 5.0)
    pause(campaign)
    for name, rest in used.items():
        for what in judge_rest(name, rest):
            campaign.anomaly(what)
    if not used:
        campaign.anomaly("no program lived through the time without brokers")
    return {
        "recovery_seconds": round(taken, 1),
        **{
            name: {
                "away_seconds": round(rest.seconds, 1),
                "busy_seconds": round(rest.busy_seconds, 1),
                "grown_mb": round(rest.grown / 1e6, 1),
                "log_lines": rest.lines,
            }
            for name, rest in used.items()
        },
    }


class Measured:
    """One program from now on."""

    def __init__(self, program: Program) -> None:
        self.program, self._pid = program, program.pid
        self._begun = time.monotonic()
        self._before = self._now()

    def rest(self) -> Rest | None:
        """What it used since, or None if it is not the same process any more."""
        now = self._now()
        if now is None or self._before is None or self.program.pid != self._pid:
            return None
        busy, resident, lines = (b - a for a, b in zip(self._before, now, strict=True))
        return Rest(time.monotonic() - self._begun, busy, int(resident), int(lines))

    def _now(self) -> tuple[float, float, float] | None:
        try:
            process = psutil.Process(self._pid)
            times, resident = process.cpu_times(), process.memory_info().rss
        except psutil.NoSuchProcess:
            return None
        return times.user + times.system, resident, len(self.program.said().splitlines())


# ---- a broker that lost the end of its files: the 20th ------------------------------------------


def truncations(campaign: Campaign, count: int) -> dict[str, Any]:
    """SIGKILL for one broker of three, the ends of its segments cut off, and started again."""
    chance = random.Random(f"truncations {campaign.options.seed}")
    bytes_cut = 0

    def strike(campaign: Campaign, fault: Fault) -> Sequence[Task]:
        nonlocal bytes_cut
        servers = campaign.servers
        # With another replica behind, what is cut here could be the only copy but one's.
        if not all_brokers_run(campaign) or not whole(servers.bootstrap):
            return ()
        index = fault.target % servers.brokers
        broker.kill(servers.place, index)
        cut = cut_ends(servers.place / broker.name(index), fault.nth * 1000)
        bytes_cut += sum(cut.values())
        campaign.performed["segments_cut"] += len(cut)
        return [(fault.seconds, "undo broker", lambda: started(campaign, index))]

    for _ in range(count):
        at, target = chance.uniform(1.0, 4.0), chance.randrange(1 << 16)
        fault = Fault(at, "truncate_broker", target, chance.uniform(0.0, 2.0), "", 1)
        campaign.round([fault], strike, at + 3.0)
        progress(campaign)
        campaign.until(lambda: whole(campaign.servers.bootstrap), 120.0, "all replicas in sync")
    pause(campaign)
    return {"bytes_cut": bytes_cut}
