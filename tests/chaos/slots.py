"""Cycles of one fault each, side by side: a slot is a program that always has one cycle under
way, and takes the next from a common list when that has ended."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.chaos.program_faults import restarted_at, stopped

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from tests.chaos.campaign import Campaign
    from tests.chaos.programs import Program

REACH_SECONDS = 60.0
"""Until a cycle is tried anew: its failpoint was not reached."""


@dataclass(slots=True)
class Cycle:
    """Kill at a failpoint, or (`sleeps`) stop there and continue.

    Attributes:
        after: seconds from the program's start to a kill at any place; 0: at the failpoint.
    """

    point: str
    nth: int = 1
    sleeps: float = 0.0
    after: float = 0.0


@dataclass(slots=True)
class Slots:
    """The list, and what is under way.

    Attributes:
        done: how many cycles of each point came to pass.
    """

    campaign: Campaign
    cycles: list[Cycle]
    done: dict[str, int] = field(default_factory=dict)
    missed: int = 0
    busy: dict[str, _Running] = field(default_factory=dict)

    def over(self) -> bool:
        return not self.cycles and not self.busy

    def turn(self, programs: Sequence[Program]) -> None:
        """Look at every slot once."""
        for program in programs:
            running = self.busy.get(program.name)
            if running is not None and running.ended():
                self._end(program.name, running)
            if program.name not in self.busy and self.cycles and program.runs():
                self.busy[program.name] = self._begun(program, self.cycles.pop())

    def _begun(self, program: Program, cycle: Cycle) -> _Running:
        if not cycle.after:
            action = "stop" if cycle.sleeps else "kill"
            restarted_at(self.campaign, program, f"{cycle.point}:{action}:{cycle.nth}")
        return _Running(program, cycle, len(program.ends), program.pid, time.monotonic())

    def _end(self, name: str, running: _Running) -> None:
        del self.busy[name]
        cycle = running.cycle
        if running.came_to_pass:
            self.done[cycle.point] = self.done.get(cycle.point, 0) + 1
            self.campaign.performed[cycle.point] += 1
            self.campaign.history.write("cycle", name=name, point=cycle.point, nth=cycle.nth)
        else:
            self.missed += 1
            self.cycles.append(cycle)

    def undo(self) -> None:
        """End what is under way, early."""
        for running in self.busy.values():
            running.wake()
        self.cycles += [running.cycle for running in self.busy.values()]
        self.busy = {}


@dataclass(slots=True)
class _Running:
    program: Program
    cycle: Cycle
    ends: int
    pid: int | None
    since: float
    stood_since: float = 0.0
    came_to_pass: bool = False

    def ended(self) -> bool:
        now = time.monotonic()
        if self.cycle.after:
            return self._killed(now)
        if self.program.pid != self.pid or not self.program.runs():
            # It ended: at its failpoint, or, as a zombie that has not come to stand, otherwise.
            self.came_to_pass = not self.cycle.sleeps or bool(self.stood_since)
            return True
        if self.cycle.sleeps:
            return self._slept(now)
        return now - self.since > REACH_SECONDS

    def _killed(self, now: float) -> bool:
        if now - self.program.started_at < self.cycle.after:
            return False
        self.came_to_pass = self.program.kill()
        return True

    def _slept(self, now: float) -> bool:
        if not self.stood_since:
            if stopped(self.program):
                self.stood_since = now
            return now - self.since > REACH_SECONDS
        if now - self.stood_since < self.cycle.sleeps:
            return False
        self.wake()
        self.came_to_pass = True
        return True

    def wake(self) -> None:
        self.program.signal(signal.SIGCONT)


def shuffled(chance: random.Random, cycles: Sequence[Cycle]) -> list[Cycle]:
    """In an order that follows from the seed."""
    return chance.sample(list(cycles), len(cycles))
