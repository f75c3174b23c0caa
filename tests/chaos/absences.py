"""A campaign of outages of given lengths, one after the other, with rows flowing: of all brokers,
of one of three, of ClickHouse.

Receives a running campaign with `relay verify --follow` and `relay status --watch` beside relays
and loader, gives a figure of each outage. Beside the common judges: no program ended, each said
who is away and why, none said what is not so, and `status` shows the truth when all is back.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from relay.dev import broker
from tests.chaos.outages import progress
from tests.chaos.pauses import pause
from tests.chaos.programs import Program
from tests.chaos.schedule import Fault
from tests.chaos.server_faults import started

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.chaos.campaign import Campaign, Task

BROKERS, ONE, CLICKHOUSE = "brokers", "one", "clickhouse"
KINDS = (BROKERS, ONE, CLICKHOUSE)
BEFORE_SECONDS, AFTER_SECONDS = 5.0, 5.0
"""Of rows around an outage."""
TRUTH_SECONDS = 60.0
"""Until `status` shows the truth: it looks every two seconds, and the group has to come back."""
_SILENT = re.compile(
    r"refused|disconnected|timed out|not answer|no broker answers|closed", re.IGNORECASE
)
UNTRUE = {
    "another process took over": "nobody else used this member",
    "run one process per": "nobody else used this member",
    "Assertion": "a C library aborted",
    "Traceback": "an error that nobody foresaw",
    "_Whole": "a private class",
    "Max retries exceeded": "the client's own words before the cause",
    "Unexpected Http Driver Exception": "the client's own words",
    "executing HTTP request": "the client's own words",
}
"""What must not stand in any log of these, and why."""


@dataclass(frozen=True, slots=True)
class Words:
    """What one program wrote from the beginning of an outage until all was there again.

    Attributes:
        name: of the program.
        said: all of it.
        speaks: whether it has to name who was away.
    """

    name: str
    said: str
    speaks: bool = True


def judge_words(words: Words, away: Collection[str]) -> list[str]:
    """Who is away is named with a cause, and nothing is said that is not so.

    Args:
        words: of a program.
        away: addresses, as HOST:PORT.
    """
    lines = words.said.splitlines()
    found = [
        f"{words.name} said {text!r} ({why})"
        for text, why in UNTRUE.items()
        if any(text in line for line in lines)
    ]
    named = any(_SILENT.search(line) and any(one in line for one in away) for line in lines)
    if words.speaks and not named:
        found.append(f"{words.name} did not say that {' or '.join(sorted(away))} is away, and why")
    return found


def judge_screen(text: str, members: int, since_ms: int) -> str:
    """What is not true of the last screen of `relay status --json`, of an app that is well."""
    screens = [line for line in text.splitlines() if line.startswith("{")]
    if not screens:
        return "it has shown none"
    last = json.loads(screens[-1])
    there, problem = len(last["group"]["members"]), last["clickhouse"]
    wrong = {
        "it is old": last["at_ms"] < since_ms,
        f"{there} members of {members}": there != members,
        f"ClickHouse: {problem}": problem != "ok",
        f"{last['anomalies']} anomalies": bool(last["anomalies"]),
    }
    return "; ".join(what for what, holds in wrong.items() if holds)


@dataclass
class Absence:
    """One outage.

    Attributes:
        kind: of KINDS.
        seconds: how long.
        away: addresses, once it has begun.
        marks: how long each program's log was then.
        ends: how many ends each program had then.
    """

    kind: str
    seconds: float
    chance: random.Random
    away: list[str] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)

    def begin(self, campaign: Campaign, _fault: Fault) -> Sequence[Task]:
        """SIGKILL; gives what undoes it."""
        servers, stack = campaign.servers, campaign.servers.stack
        assert stack is not None, "not started"
        for program in campaign.programs():
            self.marks[program.name] = program.log.stat().st_size
            self.ends[program.name] = len(program.ends)
        if self.kind == CLICKHOUSE:
            self.away = [stack.clickhouse.url.partition("//")[2].rstrip("/")]
            servers.end_endpoint(kill=True)
            return [(self.seconds, "undo endpoint", servers.start_endpoint)]
        addresses = servers.bootstrap.split(",")
        every = range(servers.brokers)
        gone = every if self.kind == BROKERS else [self.chance.choice(every)]
        self.away = [addresses[index] for index in gone]
        for index in gone:
            broker.kill(servers.place, index)
        one = partial(started, campaign, gone[0])
        undo = servers.heal if self.kind == BROKERS else one  # one alone has no quorum
        return [(self.seconds, "undo brokers", undo)]

    def said(self, program: Program) -> str:
        """What a program wrote since it began."""
        with program.log.open("rb") as log:
            log.seek(self.marks[program.name])
            return log.read().decode(errors="replace")

    def judge(self, campaign: Campaign) -> list[str]:
        """What is off, once all is there again."""
        found = []
        for program in campaign.programs():
            for status, _ in program.ends[self.ends[program.name] :]:
                found.append(f"{program.name} ended with {status}")
            words = Words(program.name, self.said(program), speaks(self.kind, program.name))
            found += judge_words(words, self.away)
        return [f"{self.kind} away for {self.seconds:g} s: {what}" for what in found]


def speaks(kind: str, program: str) -> bool:
    """Whether a program cannot but notice: of one broker of three nobody has to."""
    if kind == CLICKHOUSE:
        return program in {"loader", "status"}
    return kind == BROKERS


def outages(campaign: Campaign, lengths: Sequence[float], kinds: Sequence[str]) -> dict[str, Any]:
    """Each kind of each length, judged one by one."""
    _watched(campaign)
    chance = random.Random(f"outages {campaign.options.seed}")
    figures: dict[str, Any] = {}
    for seconds in lengths:
        for kind in kinds:
            figures[f"{kind} {seconds:g} s"] = _one(campaign, Absence(kind, seconds, chance))
    return figures


def _watched(campaign: Campaign) -> None:
    """Start verifier and status beside the others, once there is something to see."""
    campaign.round((), lambda *_: (), 3.0)
    config, place = str(campaign.directory / "relay.toml"), campaign.servers.directory
    for name, command in COMMANDS.items():
        program, *arguments = command
        beside = Program(name, [program, arguments[0], config, *arguments[1:]], place)
        beside.start()
        campaign.extra.append(beside)


COMMANDS: Mapping[str, Sequence[str]] = {
    "verify": ("relay", "verify", "--follow", "--http", "127.0.0.1:0"),
    "status": ("relay", "status", "--watch", "2", "--json"),
}


def _one(campaign: Campaign, absence: Absence) -> Mapping[str, float]:
    length = BEFORE_SECONDS + absence.seconds + AFTER_SECONDS
    fault = Fault(BEFORE_SECONDS, f"{absence.kind}_away", 0, absence.seconds, "")
    campaign.round([fault], absence.begin, length)
    taken = progress(campaign)
    pause(campaign)
    status = next(program for program in campaign.extra if program.name == "status")
    since_ms = time.time_ns() // 1_000_000

    def untrue() -> str:
        return judge_screen(absence.said(status), len(campaign.members), since_ms)

    if not campaign.until(lambda: not untrue(), TRUTH_SECONDS, "status shows that all is well"):
        campaign.anomaly(f"status, when all was back: {untrue()}")
    for what in absence.judge(campaign):
        campaign.anomaly(what)
    return {
        "progress_seconds": round(taken, 1),
        "all_there_seconds": round(campaign.pauses[-1], 1),
    }
