"""Performs the faults of relays and loaders; see tests.chaos.faults."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import psutil

from tests import wall_clock
from tests.chaos.programs import Program

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.chaos.campaign import Campaign, Task
    from tests.chaos.schedule import Fault

REACH_SECONDS = 12.0
"""Until a failpoint is given up: a table that rests, a member without partitions."""


def one(programs: Sequence[Program], fault: Fault) -> Program:
    return programs[fault.target % len(programs)]


def restarted_at(campaign: Campaign, program: Program, failpoint: str = "") -> None:
    """Killed, and started again, if need be with a failpoint armed."""
    program.kill()
    campaign.note(program)
    program.start(failpoint=failpoint)
    campaign.history.write("started", name=program.name, pid=program.pid, failpoint=failpoint)


def killed(program: Program) -> None:
    program.kill()


def kill_relay(campaign: Campaign, fault: Fault) -> Sequence[Task]:
    one(campaign.members, fault).kill()  # started again by `tend`
    return ()


def kill_loader(campaign: Campaign, fault: Fault) -> Sequence[Task]:
    one(campaign.loaders, fault).kill()
    return ()


def restart_relay(campaign: Campaign, fault: Fault) -> Sequence[Task]:
    """SIGTERM, as a rolling update does; it finishes what is buffered and ends with 0."""
    one(campaign.members, fault).ask_to_end()
    return ()


def failpoint(campaign: Campaign, fault: Fault) -> Sequence[Task]:
    """The next run of a member ends at this point."""
    restarted_at(campaign, one(campaign.members, fault), f"{fault.detail}:kill:{fault.nth}")
    return ()


def loader_failpoint(campaign: Campaign, fault: Fault) -> Sequence[Task]:
    restarted_at(campaign, one(campaign.loaders, fault), f"{fault.detail}:kill:{fault.nth}")
    return ()


def _paused(program: Program, seconds: float) -> Sequence[Task]:
    program.signal(signal.SIGSTOP)
    return [(seconds, "undo pause", lambda: program.signal(signal.SIGCONT))]


def pause_relay(campaign: Campaign, fault: Fault) -> Sequence[Task]:
    return _paused(one(campaign.members, fault), fault.seconds)


def pause_loader(campaign: Campaign, fault: Fault) -> Sequence[Task]:
    return _paused(one(campaign.loaders, fault), fault.seconds)


def pause_at(campaign: Campaign, fault: Fault) -> Sequence[Task]:
    """A zombie: it stops itself at a point of its transaction, and wakes when others have
    taken its partitions."""
    program = one(campaign.members, fault)
    restarted_at(campaign, program, f"{fault.detail}:stop:{fault.nth}")

    def stands() -> bool:
        return program.runs() and stopped(program)

    def wake() -> Sequence[Task]:
        return [(fault.seconds, "undo pause", lambda: program.signal(signal.SIGCONT))]

    return when(stands, wake, time.monotonic() + REACH_SECONDS)


def stopped(program: Program) -> bool:
    """Whether it stands at SIGSTOP."""
    try:
        return psutil.Process(program.pid).status() == psutil.STATUS_STOPPED
    except psutil.NoSuchProcess:
        return False


def when(
    condition: Callable[[], bool],
    then: Callable[[], Sequence[Task]],
    deadline: float,
    otherwise: Callable[[], Sequence[Task]] = lambda: (),
) -> Sequence[Task]:
    """Look until the condition holds."""

    def look() -> Sequence[Task]:
        if condition():
            return then()
        if time.monotonic() > deadline:
            return otherwise()
        return [(0.05, "look", look)]

    return [(0.05, "look", look)]


def twin(campaign: Campaign, fault: Fault) -> Sequence[Task]:
    """A second process under the same identity, as after a forced deletion of a pod."""
    original = one(campaign.members, fault)
    name = original.name.removeprefix("relay-")
    return _for_a_while(
        campaign, campaign.member(name), f"twin-of-{name}", fault.seconds, kill=True
    )


def join(campaign: Campaign, fault: Fault) -> Sequence[Task]:
    """A further member, which leaves after a while."""
    name = f"j{fault.target % 3}"
    kill = fault.detail == "kill"
    return _for_a_while(campaign, campaign.member(name), f"relay-{name}", fault.seconds, kill=kill)


def second_loader(campaign: Campaign, fault: Fault) -> Sequence[Task]:
    program = campaign.loader("second")
    return _for_a_while(campaign, program, program.name, fault.seconds, kill=True)


def _for_a_while(
    campaign: Campaign, program: Program, name: str, seconds: float, *, kill: bool
) -> Sequence[Task]:
    if any(p.name == name for p in campaign.programs()):
        return ()  # one such is there already
    program.name, program.wanted = name, False
    program.start()
    campaign.extra.append(program)
    end = killed if kill else Program.ask_to_end
    return [(seconds, "undo program", lambda: end(program))]


def clock_relay(campaign: Campaign, fault: Fault) -> Sequence[Task]:
    """A member whose wall clock is an hour off, until it is killed."""
    return _off_by(campaign, one(campaign.members, fault), fault)


def clock_loader(campaign: Campaign, fault: Fault) -> Sequence[Task]:
    return _off_by(campaign, one(campaign.loaders, fault), fault)


def _off_by(campaign: Campaign, program: Program, fault: Fault) -> Sequence[Task]:
    wall_clock.set_by(program.clock, int(fault.detail))
    restarted_at(campaign, program)

    def undo() -> None:
        wall_clock.set_by(program.clock, 0)
        killed(program)

    return [(fault.seconds, "undo clock", undo)]


def step_clock(campaign: Campaign, fault: Fault) -> Sequence[Task]:
    """Somebody sets a program's wall clock while it works, and sets it right again."""
    program = one([*campaign.members, *campaign.loaders], fault)
    wall_clock.set_by(program.clock, int(fault.detail))
    return [(fault.seconds, "undo clock", lambda: wall_clock.set_by(program.clock, 0))]
